"""What the commands of ``holdfast gateway`` have in common: the configuration that they are given, and its store."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.config.load import DEFAULT_PATH
from gateway.config.schema import GatewayConfig, store_of
from gateway.errors import StoreError
from gateway.store import MESSAGES
from gateway.streams.names import DEFAULT_NAME
from host.errors import ConfigError
from tools.cli.failure import fail

ConfigFile = Annotated[
    Path | None, typer.Argument(metavar="FILE", help=f"The gateway's TOML file, by default {DEFAULT_PATH}.")
]
StreamName = Annotated[
    str,
    typer.Option(
        "--stream",
        metavar="NAME",
        help="The stream with the store; without it the default stream.",
        parser=lambda name: "" if name == DEFAULT_NAME else name,
    ),
]
ConfigAgain = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="The same as FILE.")]


def chosen(command: str, file: Path | None, option: Path | None) -> Path:
    """Returns the configuration given as FILE or as ``--config``; ends the command with exit code 2 if both are."""
    if file is not None and option is not None:
        fail(command, "expected FILE or --config, got both")
    return file or option or DEFAULT_PATH


def store_folder(config: GatewayConfig, stream: str) -> Path:
    """Returns the folder of a stream's store, "" for the default stream. Raises ConfigError: there is no such one."""
    try:
        return Path(store_of(config, stream).path)
    except KeyError:
        known = ", ".join(repr(one.name) for one in config.stream) or "none: there is no [[stream]]"
        raise ConfigError(f"no stream is named {stream!r}, expected one of {known}") from None


def check_exists(folder: Path, *files: str) -> None:
    """Raises StoreError if a folder has neither a message store nor one of these files, or cannot be looked into."""
    try:
        names = {path.name for path in folder.iterdir()}
    except (FileNotFoundError, NotADirectoryError):
        names = set()
    except OSError as error:
        raise StoreError(f"message store {folder}: {error.strerror}") from error
    if names.isdisjoint([MESSAGES, *files]):
        raise StoreError(f"message store {folder}: there is none")
