"""``holdfast gateway backup``, ``restore`` and ``new-epoch``: a store is copied, and no identity is given twice."""

import os
from pathlib import Path
from typing import Annotated

import typer

from gateway import backup
from gateway.config_file import DEFAULT_PATH, load
from gateway.errors import GatewayError
from tools.failure import failing_on

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="The gateway's TOML file.")]
Backup = Annotated[Path, typer.Argument(metavar="BACKUP", help="The file with the copy.")]


def back_up(target: Backup, config: Config = DEFAULT_PATH) -> None:
    """Copy the message store of a gateway, running or stopped, into a file."""
    os.umask(0o077)
    with failing_on(GatewayError, command="gateway backup"):
        folder = _folder(config)
        backup.backup(folder, target)
    typer.echo(f"{folder}: copied to {target}")


def restore(source: Backup, config: Config = DEFAULT_PATH) -> None:
    """Put a backup in the place of the message store of a gateway that is stopped."""
    os.umask(0o077)
    with failing_on(GatewayError, command="gateway restore"):
        gateway_config, _ = load(config)
        folder = Path(gateway_config.store.path)
        before = backup.restore(folder, source, gateway_config.name)
    typer.echo(f"{folder}: restored from {source}")
    if before.exists():
        typer.echo(f"  the files that were there are in {before}")


def new_epoch(config: Config = DEFAULT_PATH) -> None:
    """Begin a new epoch in the message store of a gateway that is stopped: it was restored by other means."""
    os.umask(0o077)
    with failing_on(GatewayError, command="gateway new-epoch"):
        folder = _folder(config)
        backup.begin_epoch(folder)
    typer.echo(f"{folder}: the next start gives identities of a new epoch")


def _folder(config: Path) -> Path:
    gateway_config, _ = load(config)
    return Path(gateway_config.store.path)
