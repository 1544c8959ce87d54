"""``holdfast gateway backup``, ``restore`` and ``new-epoch``: a store is copied, and no identity is given twice."""

import os
from pathlib import Path
from typing import Annotated

import typer

from gateway.config.load import DEFAULT_PATH, load
from gateway.config.schema import stream_names
from gateway.store import repair
from host.errors import HostError
from tools.cli.failure import failing_on
from tools.cli.gateway.arguments import ConfigAgain, ConfigFile, StreamName, check_exists, chosen, store_folder

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="The gateway's TOML file.")]
Backup = Annotated[Path, typer.Argument(metavar="BACKUP", help="The file with the copy.")]


def back_up(target: Backup, config: Config = DEFAULT_PATH, stream: StreamName = "") -> None:
    """Copy the message store of a gateway, running or stopped, into a file."""
    os.umask(0o077)
    with failing_on(HostError, command="gateway backup"):
        gateway_config, _ = load(config)
        folder = store_folder(gateway_config, stream)
        check_exists(folder)
        repair.backup(folder, target)
    typer.echo(f"{folder}: copied to {target}")
    if others := [name for name in stream_names(gateway_config) if name != stream]:
        named = ", ".join(name or "default" for name in others)
        typer.echo(f"  it has one stream; these have stores of their own: {named}", err=True)


def restore(source: Backup, config: Config = DEFAULT_PATH, stream: StreamName = "") -> None:
    """Put a backup in the place of the message store of a gateway that is stopped."""
    os.umask(0o077)
    with failing_on(HostError, command="gateway restore"):
        gateway_config, _ = load(config)
        folder = store_folder(gateway_config, stream)
        before = repair.restore(folder, source, gateway_config.name)
    typer.echo(f"{folder}: restored from {source}")
    if before.exists():
        typer.echo(f"  the files that were there are in {before}")


def new_epoch(file: ConfigFile = None, config: ConfigAgain = None, stream: StreamName = "") -> None:
    """Begin a new epoch in the message store of a gateway that is stopped: it was restored by other means."""
    os.umask(0o077)
    with failing_on(HostError, command="gateway new-epoch"):
        gateway_config, _ = load(chosen("gateway new-epoch", file, config))
        folder = store_folder(gateway_config, stream)
        repair.begin_epoch(folder)
    typer.echo(f"{folder}: the next start gives identities of a new epoch")
