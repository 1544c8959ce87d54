"""``holdfast cloud rebuild``: makes the tables anew from the landing files."""

from pathlib import Path
from typing import Annotated

import typer

from cloud import (
    BadDecoder,
    CannotRebuild,
    JobRunning,
    LedgerLost,
    NewerTables,
    ProofFailed,
    SparkMissing,
    open_session,
    rebuild,
)
from tools.cli.failure import fail, failing_on
from tools.cli.ingest import sentence, tell
from tools.cli.paths import cache_directory, state_directory

COMMAND = "cloud rebuild"


def rebuild_tables(
    landing: Annotated[
        Path | None,
        typer.Option(help="The folder with the landing files.", show_default="landing in ~/.local/state/holdfast"),
    ] = None,
    tables: Annotated[
        Path | None, typer.Option(help="The folder with the tables.", show_default="tables in ~/.local/state/holdfast")
    ] = None,
    decoder: Annotated[
        list[Path] | None, typer.Option(help="A Python file with decoders of your own; may be given again.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as one JSON object.")] = False,
) -> None:
    """Make all tables anew from the landing files. The old ones are kept beside them."""
    state = state_directory()
    landing, tables = landing or state / "landing", tables or state / "tables"
    with failing_on(SparkMissing, JobRunning, NewerTables, BadDecoder, CannotRebuild, OSError, command=COMMAND):
        try:
            open_session(cache_directory())
            report = rebuild(None, landing, tables, decoders=decoder or [])
        except (ProofFailed, LedgerLost) as error:
            fail(COMMAND, str(error), exit_code=1)
    if not tell(COMMAND, report, sentence(report), as_json):
        raise typer.Exit(1)
