"""``holdfast gateway check-config``: says whether a gateway would start with a configuration, and starts nothing."""

from pathlib import Path

import typer

from gateway.broker import naming_stream
from gateway.config.schema import stream_names, with_taken_streams
from gateway.errors import GatewayError
from gateway.store import check_store, is_taken
from tools.cli.failure import failing_on
from tools.cli.gateway.arguments import ConfigAgain, ConfigFile, chosen, store_folder
from tools.cli.gateway.config import read_configuration


def check_config(
    file: ConfigFile = None,
    config: ConfigAgain = None,
) -> None:
    """Check a gateway's configuration and the files that it names, without starting a gateway."""
    path = chosen("gateway check-config", file, config)
    with failing_on(GatewayError, command="gateway check-config"):
        found = read_configuration(path)
        is_running = is_taken(Path(found.config.store.path))
        taken = with_taken_streams(found.config)
        for stream in () if is_running else stream_names(taken):
            with naming_stream(stream):
                check_store(store_folder(taken, stream))
    for event, reason in found.warnings:
        typer.echo(f"holdfast gateway check-config: warning: {event}: {reason}", err=True)
    if is_running:
        typer.echo(f"holdfast gateway check-config: note: a gateway runs on {found.config.store.path}", err=True)
    typer.echo(f"{path}: ok")
