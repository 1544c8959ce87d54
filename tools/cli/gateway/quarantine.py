"""``holdfast gateway quarantine``: lists what a gateway could not read and has set aside."""

from typing import Annotated

import msgspec
import typer

from gateway.config.load import load
from gateway.store import quarantine
from host.errors import HostError
from tools.cli.failure import failing_on
from tools.cli.gateway.arguments import ConfigAgain, ConfigFile, StreamName, check_exists, chosen, store_folder
from tools.cli.utc import utc_of


def list_notes(
    file: ConfigFile = None,
    config: ConfigAgain = None,
    stream: StreamName = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array with one object for each entry.")] = False,
) -> None:
    """List what a gateway could not read and has set aside, the oldest first. The gateway may run."""
    with failing_on(HostError, command="gateway quarantine"):
        gateway_config, _ = load(chosen("gateway quarantine", file, config))
        folder = store_folder(gateway_config, stream)
        check_exists(folder, quarantine.FILE)
        notes = quarantine.notes_in(folder)
    if as_json:
        typer.echo(msgspec.json.encode(notes).decode())
    else:
        typer.echo("\n".join(map(_line, notes)) or "nothing was set aside")


def _line(note: quarantine.Note) -> str:
    lost = f", {note.messages} messages" if note.messages else ""
    return f"{utc_of(note.found_ms)} {note.file}: {note.what}{lost}: {note.reason}; kept: {note.kept}"
