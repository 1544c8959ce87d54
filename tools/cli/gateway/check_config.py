"""``holdfast gateway check-config``: says whether a gateway would start with a configuration, and starts nothing."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.config_file import DEFAULT_PATH
from gateway.errors import GatewayError
from gateway.store.database import check_store
from gateway.store.folder import is_taken
from tools.failure import failing_on
from tools.gateway_config import read_configuration


def check_config(
    config: Annotated[Path | None, typer.Argument(metavar="FILE", help="The gateway's TOML file.")] = None,
    option: Annotated[Path | None, typer.Option("--config", help="The same, as `gateway run` takes it.")] = None,
) -> None:
    """Check a gateway's configuration and the files that it names, without starting a gateway."""
    path = config or option or DEFAULT_PATH
    with failing_on(GatewayError, command="gateway check-config"):
        found = read_configuration(path)
        folder = Path(found.config.store.path)
        if not (is_running := is_taken(folder)):
            check_store(folder)
    for event, reason in found.warnings:
        typer.echo(f"holdfast gateway check-config: warning: {event}: {reason}", err=True)
    if is_running:
        typer.echo(f"holdfast gateway check-config: note: a gateway runs on {found.config.store.path}", err=True)
    typer.echo(f"{path}: ok")
