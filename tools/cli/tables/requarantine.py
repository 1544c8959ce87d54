"""``holdfast cloud requarantine``: decodes again what is in quarantine."""

import typer

from cloud import Report, requarantine
from tools.cli.tables.folders import (
    MASTER_DEFAULT,
    AsJson,
    Decoders,
    LandingFolder,
    Master,
    Settings,
    TablesFolder,
    find_folders,
)
from tools.cli.tables.ingest import tell
from tools.cli.tables.session import session

COMMAND = "cloud requarantine"


def requarantine_messages(
    landing: LandingFolder = None,
    tables: TablesFolder = None,
    decoder: Decoders = None,
    master: Master = MASTER_DEFAULT,
    conf: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Decode the undecodable messages in quarantine again, with the decoders of today."""
    landed, folder = find_folders(landing, tables)
    with session(COMMAND, master, conf):
        report = requarantine(None, landed, folder, decoders=decoder or [])
    if not tell(COMMAND, report, _sentence(report), as_json):
        raise typer.Exit(1)


def _sentence(report: Report) -> str:
    return (
        f"{report.rows_in} messages decoded again: {report.new} have {report.readings} readings now, "
        f"{report.quarantined} stay in quarantine"
    )
