"""``holdfast cloud rebuild``: makes the tables anew from the landing files."""

import typer

from cloud import rebuild
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
    with session(COMMAND, master, conf):
        report = rebuild(None, landed, folder, decoders=decoder or [])
    if not tell(COMMAND, report, sentence(report), as_json):
        raise typer.Exit(1)
