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
from tools.cli.paths import cache_directory
from tools.cli.tables.folders import (
    MASTER_DEFAULT,
    AsJson,
    Decoders,
    LandingFolder,
    Master,
    Settings,
    TablesFolder,
    find_folders,
    parse_settings,
)
from tools.cli.tables.ingest import sentence, tell

COMMAND = "cloud rebuild"


def rebuild_tables(
    landing: LandingFolder = None,
    tables: TablesFolder = None,
    decoder: Decoders = None,
    master: Master = MASTER_DEFAULT,
    conf: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Make all tables anew from the landing files. The old ones are kept beside them."""
    landed, folder = find_folders(landing, tables)
    settings = parse_settings(conf)
    with (
        failing_on(SparkMissing, JobRunning, NewerTables, BadDecoder, CannotRebuild, OSError, command=COMMAND),
        failing_on(ProofFailed, LedgerLost, command=COMMAND, exit_code=1),
    ):
        open_session(cache_directory(), master=master, settings=settings)
        report = rebuild(None, landed, folder, decoders=decoder or [])
    if not tell(COMMAND, report, sentence(report), as_json):
        raise typer.Exit(1)
