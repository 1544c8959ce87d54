"""``holdfast cloud report``: the state of the tables as one HTML page."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from cloud import BadQuery, NoTables, OpenTables
from tools.cli.failure import failing_on
from tools.cli.output import write_whole
from tools.cli.paths import state_directory
from tools.cli.report.figures import read_figures
from tools.cli.report.page import render
from tools.cli.tables.folders import TablesFolder, without_options

COMMAND = "cloud report"


def report(
    tables: TablesFolder = None,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("holdfast-report.html"),
) -> None:
    """Write one HTML page about the tables: completeness, gaps, rates, latency by hop, and devices."""
    folder = tables or state_directory() / "tables"
    with failing_on(NoTables, BadQuery, OSError, command=COMMAND):
        with OpenTables(folder) as opened:
            figures = read_figures(opened)
        write_whole(out, render(without_options(folder), figures, datetime.now(UTC)).encode())
    print(out)
