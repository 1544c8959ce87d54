"""Where a gateway is to listen, as its configuration has it."""

from gateway.config import ListenerConfig, SerialConfig, UnixConfig
from gateway.config_errors import ConfigSource
from gateway.config_file import Draft

Place = tuple[str, int | str]


def check_places(source: ConfigSource, draft: Draft) -> None:
    """Notes each listener whose place another one has already, as far as the file shows that."""
    taken: dict[Place, str] = {}
    if draft.config.metrics is not None:
        taken["127.0.0.1", draft.config.metrics.port] = "[metrics]"
    for number, listener in draft.listeners.items():
        key, place = _place_of(listener)
        if place in taken:
            source.add(f"listener[{number}].{key}", f"{place[1]!r}: {taken[place]} listens there already")
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
