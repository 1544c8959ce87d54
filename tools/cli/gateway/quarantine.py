"""``holdfast gateway quarantine``: what a gateway has set aside because the medium has spoilt it."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from gateway.config_file import DEFAULT_PATH, load
from gateway.errors import GatewayError
from gateway.store.quarantine import Note, notes_in
from tools.failure import failing_on
from tools.utc import utc_of


def list_notes(
    config: Annotated[Path, typer.Argument(metavar="FILE", help="The gateway's TOML file.")] = DEFAULT_PATH,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array with one object for each entry.")] = False,
) -> None:
    """List what a gateway could not read and has set aside, the oldest first. The gateway may run."""
    with failing_on(GatewayError, command="gateway quarantine"):
        gateway_config, _ = load(config)
        notes = notes_in(Path(gateway_config.store.path))
    if as_json:
        typer.echo(msgspec.json.encode(notes).decode())
    else:
        typer.echo("\n".join(map(_line, notes)) or "nothing was set aside")


def _line(note: Note) -> str:
    lost = f", {note.messages} messages" if note.messages else ""
    return f"{utc_of(note.found_ms)} {note.file}: {note.place}{lost}: {note.reason}; kept: {note.kept}"
