"""``holdfast cloud requarantine``: decodes again what is in quarantine."""

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
from tools.cli.failure import failing_on
from tools.cli.paths import cache_directory
from tools.cli.tables.folders import (
    LANDING_DEFAULT,
    MASTER_DEFAULT,
    AsJson,
    Decoders,
    Master,
    Settings,
    TablesFolder,
    find_folders,
    parse_place,
    parse_settings,
)
from tools.cli.tables.ingest import tell

COMMAND = "cloud requarantine"


def requarantine_messages(
    landing: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            parser=parse_place,
            help="The folder with the landing files, for a batch that was interrupted.",
            show_default=LANDING_DEFAULT,
        ),
    ] = None,
    tables: TablesFolder = None,
    decoder: Decoders = None,
    master: Master = MASTER_DEFAULT,
    conf: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Decode the undecodable messages in quarantine again, with the decoders of today."""
    landed, folder = find_folders(landing, tables)
    settings = parse_settings(conf)
    with (
        failing_on(SparkMissing, JobRunning, NewerTables, NoTables, BadDecoder, OSError, command=COMMAND),
        failing_on(ProofFailed, LedgerLost, command=COMMAND, exit_code=1),
    ):
        open_session(cache_directory(), master=master, settings=settings)
        report = requarantine(None, landed, folder, decoders=decoder or [])
    if not tell(COMMAND, report, _sentence(report), as_json):
        raise typer.Exit(1)


def _sentence(report: Report) -> str:
    return (
        f"{report.rows_in} messages decoded again: {report.new} have {report.readings} readings now, "
        f"{report.quarantined} stay in quarantine"
    )
