"""``holdfast cloud ingest``: from landing files into tables."""

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from cloud import BadDecoder, JobRunning, LedgerLost, ProofFailed, Report, SparkMissing, ingest
from tools.cli.failure import fail, failing_on
from tools.cli.paths import cache_directory, state_directory

app = typer.Typer(add_completion=False)


@app.command("ingest")
def ingest_landing(
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
    """Bring the landing files that are new since the last run into the tables, each message once."""
    state = state_directory()
    try:
        with failing_on(SparkMissing, JobRunning, BadDecoder, OSError, command="cloud ingest"):
            folders = landing or state / "landing", tables or state / "tables"
            report = ingest(*folders, cache=cache_directory(), decoders=decoder or ())
    except (ProofFailed, LedgerLost) as error:
        fail("cloud ingest", str(error), exit_code=1)
    for batch in report.taken_back:
        text = f"deleted the rows of batch {batch}, which was interrupted and could not go on; its files are taken anew"
        print(f"holdfast cloud ingest: {text}", file=sys.stderr)
    for item in report.set_aside:
        print(f"holdfast cloud ingest: set aside {item.file}: {item.reason}", file=sys.stderr)
    print(msgspec.json.encode(_facts(report)).decode() if as_json else _sentence(report))
    if report.set_aside:
        raise typer.Exit(1)


def _facts(report: Report) -> dict[str, object]:
    facts: dict[str, object] = msgspec.to_builtins(report)
    return {**facts, "set_aside": [item._asdict() for item in report.set_aside], "holds": not report.set_aside}


def _sentence(report: Report) -> str:
    return (
        f"{report.files} landing files: {report.rows_in} rows in = {report.new} new + {report.duplicates} duplicates "
        f"+ {report.quarantined} quarantined; {report.readings} readings"
        + (f"; {len(report.set_aside)} files set aside" if report.set_aside else "")
    )
