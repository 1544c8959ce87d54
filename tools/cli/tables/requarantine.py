"""``holdfast cloud requarantine``: decodes again what is in quarantine."""

from pathlib import Path
from typing import Annotated

import typer

from cloud import (
    BadDecoder,
    JobRunning,
    LedgerLost,
    NewerTables,
    NoTables,
    ProofFailed,
    Report,
    SparkMissing,
    open_session,
    requarantine,
)
from tools.cli.failure import fail, failing_on
from tools.cli.ingest import tell
from tools.cli.paths import cache_directory, state_directory

COMMAND = "cloud requarantine"


def requarantine_messages(
    landing: Annotated[
        Path | None,
        typer.Option(
            help="The folder with the landing files, for a batch that was interrupted.",
            show_default="landing in ~/.local/state/holdfast",
        ),
    ] = None,
    tables: Annotated[
        Path | None, typer.Option(help="The folder with the tables.", show_default="tables in ~/.local/state/holdfast")
    ] = None,
    decoder: Annotated[
        list[Path] | None, typer.Option(help="A Python file with decoders of your own; may be given again.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as one JSON object.")] = False,
) -> None:
    """Decode the undecodable messages in quarantine again, with the decoders of today."""
    state = state_directory()
    landing, tables = landing or state / "landing", tables or state / "tables"
    with failing_on(SparkMissing, JobRunning, NewerTables, NoTables, BadDecoder, OSError, command=COMMAND):
        try:
            open_session(cache_directory())
            report = requarantine(None, landing, tables, decoders=decoder or [])
        except (ProofFailed, LedgerLost) as error:
            fail(COMMAND, str(error), exit_code=1)
    if not tell(COMMAND, report, _sentence(report), as_json):
        raise typer.Exit(1)


def _sentence(report: Report) -> str:
    return (
        f"{report.rows_in} messages decoded again: {report.new} have {report.readings} readings now, "
        f"{report.quarantined} stay in quarantine"
    )
