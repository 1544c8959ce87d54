"""``holdfast cloud rebuild``: makes the tables anew from the landing files."""

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
from tools.cli.failure import failing_on
from tools.cli.folders import AsJson, Decoders, LandingFolder, TablesFolder, find_folders
from tools.cli.ingest import sentence, tell
from tools.cli.paths import cache_directory

COMMAND = "cloud rebuild"


def rebuild_tables(
    landing: LandingFolder = None,
    tables: TablesFolder = None,
    decoder: Decoders = None,
    as_json: AsJson = False,
) -> None:
    """Make all tables anew from the landing files. The old ones are kept beside them."""
    landing, tables = find_folders(landing, tables)
    with (
        failing_on(SparkMissing, JobRunning, NewerTables, BadDecoder, CannotRebuild, OSError, command=COMMAND),
        failing_on(ProofFailed, LedgerLost, command=COMMAND, exit_code=1),
    ):
        open_session(cache_directory())
        report = rebuild(None, landing, tables, decoders=decoder or [])
    if not tell(COMMAND, report, sentence(report), as_json):
        raise typer.Exit(1)
