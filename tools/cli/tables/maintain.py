"""``holdfast cloud maintain``: keeps tables and landing folder small, and forgets devices."""

from typing import Annotated

import msgspec
import typer

from cloud import Upkeep, maintain
from tools.cli.tables.folders import (
    MASTER_DEFAULT,
    AsJson,
    LandingFolder,
    Master,
    Settings,
    TablesFolder,
    find_folders,
)
from tools.cli.tables.session import session

COMMAND = "cloud maintain"


def maintain_tables(
    landing: LandingFolder = None,
    tables: TablesFolder = None,
    landing_days: Annotated[
        float | None,
        typer.Option(min=0, metavar="DAYS", help="Delete landing files that the tables have held for DAYS days."),
    ] = None,
    forget: Annotated[
        list[str] | None,
        typer.Option(metavar="DEVICE", help="Delete the messages of this device; may be given again."),
    ] = None,
    master: Master = MASTER_DEFAULT,
    conf: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Make large files of small ones, delete files that are no longer needed, and forget devices."""
    landed, folder = find_folders(landing, tables)
    with session(COMMAND, master, conf):
        done = maintain(None, landed, folder, landing_days=landing_days, devices=forget or [])
    print(msgspec.json.encode(done).decode() if as_json else _sentences(done))


def _sentences(done: Upkeep) -> str:
    lines = [
        f"{done.merged} small files became {done.written}; {done.deleted} old ones deleted; "
        f"{done.landing_files} landing files deleted; {done.forgotten} messages forgotten"
    ]
    return "\n".join([*lines, *(f"kept: {reason}" for reason in done.kept_back)])
