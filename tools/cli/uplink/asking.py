"""What the commands of ``holdfast uplink`` have in common: they ask the gateway that a configuration file describes."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.config.load import DEFAULT_PATH, load
from host.errors import HostError
from tools.cli.failure import fail, failing_on
from uplink.control import ControlFailed, ask

RouteName = Annotated[str, typer.Argument(metavar="ROUTE", help="The route's name.")]
ConfigOption = Annotated[Path, typer.Option("--config", metavar="FILE", help="The gateway's TOML file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON array with one object for each line.")]
DEFAULT_CONFIG = DEFAULT_PATH


def answer(command: str, config: Path, do: str, route: str = "", file: str = "", **keys: Any) -> Any:
    """Returns the answer of the gateway to a request, as JSON's types; ``keys`` are more keys of the request.

    Ends the command with exit code 2 if the configuration cannot be read, and with 1 if no gateway runs or it cannot do
    what it is asked.
    """
    with failing_on(HostError, command=command):
        gateway_config, _ = load(config)
    try:
        return ask(Path(gateway_config.store.path), do, route, file, **keys)
    except ControlFailed as error:
        fail(command, str(error), 1)
