"""``holdfast cloud rebuild`` and ``requarantine``: decode anew what has landed, or what is in quarantine."""

import typer

from cloud import Report, rebuild, requarantine
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
from tools.cli.tables.ingest import sentence, tell
from tools.cli.tables.session import session


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
    with session("cloud rebuild", master, conf):
        report = rebuild(None, landed, folder, decoders=decoder or [])
    if not tell("cloud rebuild", report, sentence(report), as_json):
        raise typer.Exit(1)


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
    with session("cloud requarantine", master, conf):
        report = requarantine(None, landed, folder, decoders=decoder or [])
    if not tell("cloud requarantine", report, _decoded(report), as_json):
        raise typer.Exit(1)


def _decoded(report: Report) -> str:
    return (
        f"{report.rows_in} messages decoded again: {report.new} have {report.readings} readings now, "
        f"{report.quarantined} stay in quarantine"
    )
