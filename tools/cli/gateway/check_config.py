"""``holdfast gateway check-config``: says whether a gateway would start with a configuration, and starts nothing."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.broker import naming_stream
from gateway.config.schema import GatewayConfig, stream_names, with_taken_streams
from gateway.store.repair import check_store, is_taken
from host.errors import HostError
from tools.cli.failure import failing_on
from tools.cli.gateway.arguments import ConfigAgain, ConfigFile, chosen, store_folder
from tools.cli.gateway.config import read_configuration
from tools.cli.gateway.unit import DEFAULT, Unit, written_by

UnitFile = Annotated[Path, typer.Option("--unit", metavar="UNIT", help="The systemd unit that runs the gateway.")]
DropIn = Annotated[
    bool, typer.Option("--drop-in", help="Print a drop-in for the unit: it lets the gateway write its folders.")
]


def check_config(
    file: ConfigFile = None, config: ConfigAgain = None, unit: UnitFile = DEFAULT, drop_in: DropIn = False
) -> None:
    """Check a gateway's configuration and the files that it names, without starting a gateway.

    If the unit exists and root calls the command, it looks at all files as the unit's user.
    """
    path = chosen("gateway check-config", file, config)
    with failing_on(OSError, command="gateway check-config"):
        service = Unit(unit) if drop_in or unit.is_file() else None
    if service is not None:
        service.become_user()
    with failing_on(HostError, command="gateway check-config"):
        found = read_configuration(path)
        if service is not None and drop_in:
            typer.echo(service.drop_in(written_by(found.config)), nl=False)
            return
        is_running = is_taken(Path(found.config.store.path))
        taken = with_taken_streams(found.config)
        for stream in () if is_running else stream_names(taken):
            with naming_stream(stream):
                check_store(store_folder(taken, stream))
    for event, reason in found.warnings:
        typer.echo(f"holdfast gateway check-config: warning: {event}: {reason}", err=True)
    for line in _about_unit(service, found.config, path):
        typer.echo(f"holdfast gateway check-config: warning: {line}", err=True)
    if is_running:
        typer.echo(f"holdfast gateway check-config: note: a gateway runs on {found.config.store.path}", err=True)
    typer.echo(f"{path}: ok")


def _about_unit(service: Unit | None, config: GatewayConfig, path: Path) -> list[str]:
    if service is None:
        return []
    missing = service.missing(config)
    return [*(service.advice(missing, path) if missing else ()), *service.advice_on_ports(config)]
