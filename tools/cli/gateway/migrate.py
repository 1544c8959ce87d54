"""``holdfast gateway migrate``: a gateway goes on in other folders, with all that it has stored."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from gateway.config.errors import ConfigSource
from gateway.config.load import draft_of, named_files
from gateway.config.schema import GatewayConfig, store_of, stream_names, with_streams, with_taken_streams
from gateway.store import repair
from gateway.store.repair import Move
from host.errors import ConfigError, HostError
from tools.cli.failure import failing_on
from uplink.connect.credentials import files_of
from uplink.reading import routes_of

Old = Annotated[Path, typer.Argument(metavar="OLD", help="The configuration file of the gateway as it is.")]
New = Annotated[Path, typer.Argument(metavar="NEW", help="The new configuration file; made from OLD if missing.")]


def migrate(old: Old, new: New) -> None:
    """Move all streams of a stopped gateway to the folders of another configuration, and prove that nothing differs."""
    os.umask(0o077)
    with failing_on(HostError, OSError, command="gateway migrate"):
        config = _read(old)
        if not new.exists():
            _copy_configuration(old, new, config)
        moves = list(_moves(config, old, _read(new), new))
        found = repair.migrate(moves)
    typer.echo(f"{old}: moved to {new}")
    typer.echo(
        f"  {found.stores:,} streams, {found.messages:,} messages, {found.sessions:,} sessions, "
        f"{found.retained:,} retained messages, {found.places:,} places"
    )
    typer.echo(f"  {found.rows:,} rows compared, 0 differences; the old stores are sealed")


def _read(path: Path) -> GatewayConfig:
    """Returns a configuration, of which only the streams and the stores matter here. Raises ConfigError."""
    source = ConfigSource(path)
    config = draft_of(source).config
    source.raise_errors()
    return with_taken_streams(config)


def _moves(old: GatewayConfig, old_path: Path, new: GatewayConfig, new_path: Path) -> Iterator[Move]:
    """Yields where each stream's store goes. Raises ConfigError if the configurations do not fit."""
    if old.name != new.name:
        raise ConfigError(f"{new_path}: name: {new.name!r}, expected {old.name!r} as in {old_path}")
    names, wanted = stream_names(old), stream_names(new)
    missing = [name for name in names if name not in wanted]
    if new.network.streams == "any":  # streams that were taken of neighbours are in no table
        new = with_streams(new, missing)
    elif missing:
        raise ConfigError(f"{new_path}: no [[stream]] is named {', '.join(map(repr, missing))}, as in {old_path}")
    for name in names:
        here, there = (Path(store_of(config, name).path).absolute() for config in (old, new))
        if os.path.realpath(here) == os.path.realpath(there):
            key = f"stream {name!r}" if name else "store.path"
            raise ConfigError(f"{new_path}: {key}: {there} is the folder of {old_path} too, expected another one")
        yield Move(name, here, there)


def _copy_configuration(old: Path, new: Path, config: GatewayConfig) -> None:
    """Makes a configuration of the same text in another folder, with the files beside it that it names.

    Raises ConfigError: a store's path does not depend on the folder of the configuration.
    """
    source = ConfigSource(old)
    draft = draft_of(source)
    for name in stream_names(config):
        store = Path(store_of(config, name).path)
        if not store.is_relative_to(old.parent):
            text = f"{store} is not below its folder: write {new} yourself, with another path"
            raise ConfigError(f"{old}: {f'stream {name!r}' if name else 'store.path'}: {text}")
    new.parent.mkdir(parents=True, exist_ok=True)
    routes = routes_of(source, draft.routes).values()
    named = [*named_files(draft), *(one for route in routes for one in files_of(route))]
    for file in [Path(one) for _, one in named]:
        if file.is_relative_to(old.parent):
            target = new.parent / file.relative_to(old.parent)
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy_file(file, target)
    _copy_file(old, new)


def _copy_file(file: Path, target: Path) -> None:
    """Copies a file, which has its name only when it is whole. An earlier call may have copied it.

    Raises OSError, and ConfigError if another file has the name.
    """
    if os.path.lexists(target):
        if target.read_bytes() != file.read_bytes():
            raise ConfigError(f"{target}: there is another file already, expected none or a copy of {file}")
        return
    part = target.with_name(f".{target.name}.part")
    try:
        shutil.copy2(file, part)
        part.rename(target)
    except OSError as error:
        part.unlink(missing_ok=True)
        error.filename, error.filename2 = str(target), None  # a full disk is reported without a name
        raise
