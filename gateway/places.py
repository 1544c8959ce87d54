"""Where a gateway is to listen, as its configuration has it."""

from pathlib import Path

from gateway.config import GatewayConfig, ListenerConfig, SerialConfig, UnixConfig
from gateway.config_errors import located

Place = tuple[str, int | str]


def check_places(path: Path, config: GatewayConfig) -> None:
    """Raises ConfigError for the first listener whose place another one has already, as far as the file shows that."""
    taken: dict[Place, str] = {}
    if config.metrics is not None:
        taken["127.0.0.1", config.metrics.port] = "[metrics]"
    for number, listener in enumerate(config.listener):
        key, place = _place_of(listener)
        if place in taken:
            raise located(path, f"listener[{number}].{key}", f"{place[1]!r}: {taken[place]} listens there already")
        if place[1] != 0:  # the system finds a free port
            taken[place] = f"listener[{number}]"


def _place_of(listener: ListenerConfig) -> tuple[str, Place]:
    """Returns the key that says where, and where that is."""
    match listener:
        case UnixConfig():
            return "path", ("unix", listener.path)
        case SerialConfig():
            return "device", ("serial", listener.device)
        case _:
            return "port", (listener.host, listener.port)
