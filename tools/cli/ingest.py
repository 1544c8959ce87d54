"""``holdfast cloud ingest``: from landing files into tables."""

import signal
import sys
import time
from pathlib import Path
from threading import Event
from typing import Annotated

import msgspec
import typer

from cloud import (
    BadDecoder,
    JobRunning,
    LedgerLost,
    NewerTables,
    ProofFailed,
    Report,
    SparkMissing,
    ingest,
    open_session,
)
from tools.cli.failure import fail, failing_on
from tools.cli.folders import (
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
from tools.cli.interval import parse_interval, wait_s
from tools.cli.paths import cache_directory

COMMAND = "cloud ingest"

app = typer.Typer(add_completion=False)


@app.command("ingest")
def ingest_landing(
    landing: LandingFolder = None,
    tables: TablesFolder = None,
    decoder: Decoders = None,
    every: Annotated[
        float | None,
        typer.Option(
            metavar="INTERVAL",
            parser=parse_interval,
            help="Run until SIGTERM or Ctrl-C, and begin a run each INTERVAL, such as 60s or 5m.",
        ),
    ] = None,
    master: Master = MASTER_DEFAULT,
    conf: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Bring the landing files that are new since the last run into the tables, each message once."""
    landed, folder = find_folders(landing, tables)
    settings = parse_settings(conf)
    if "://" not in str(landed) and not Path(landed).is_dir():
        fail(COMMAND, f"the landing folder {Path(landed).absolute()} does not exist")
    with failing_on(SparkMissing, command=COMMAND):
        open_session(cache_directory(), master=master, settings=settings, long_run=every is not None)
    if every is None:
        with failing_on(JobRunning, OSError, command=COMMAND):
            sound = _run(landed, folder, decoder or [], as_json)
    else:
        sound = _run_every(every, landed, folder, decoder or [], as_json)
    if not sound:
        raise typer.Exit(1)


def _run_every(interval_s: float, landing: Path | str, tables: Path | str, decoders: list[Path], as_json: bool) -> bool:
    """Runs the job again and again until a signal comes. Returns whether the last run was sound."""
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    while True:
        began_s = time.monotonic()
        try:
            sound = _run(landing, tables, decoders, as_json)
        except (JobRunning, OSError) as error:
            # At the next run the other command may be done, and a full disk or a folder that is away may be back.
            print(f"holdfast {COMMAND}: {error}", file=sys.stderr, flush=True)
            sound = False
        if stop.wait(wait_s(interval_s, began_s, time.monotonic())):
            return sound


def _run(landing: Path | str, tables: Path | str, decoders: list[Path], as_json: bool) -> bool:
    """Runs the job once and prints what it did. Returns whether every landing file could be used."""
    with (
        failing_on(ProofFailed, LedgerLost, command=COMMAND, exit_code=1),
        failing_on(NewerTables, BadDecoder, command=COMMAND),
    ):
        report = ingest(None, landing, tables, decoders=decoders)
    return tell(COMMAND, report, sentence(report), as_json)


def tell(command: str, report: Report, text: str, as_json: bool) -> bool:
    """Prints what a run did. Returns whether every landing file could be used."""
    for batch in report.taken_back:
        deleted = (
            f"deleted the rows of batch {batch}, which was interrupted and could not go on; its messages are taken anew"
        )
        print(f"holdfast {command}: {deleted}", file=sys.stderr)
    for item in report.set_aside:
        print(f"holdfast {command}: set aside {item.file}: {item.reason}", file=sys.stderr)
    for item in report.missing:
        print(f"holdfast {command}: missing {item.file}: {item.reason}", file=sys.stderr)
    print(msgspec.json.encode(_facts(report)).decode() if as_json else text, flush=True)
    return _holds(report)


def _holds(report: Report) -> bool:
    return not report.set_aside and not report.missing


def _facts(report: Report) -> dict[str, object]:
    facts: dict[str, object] = msgspec.to_builtins(report)
    named = {name: [item._asdict() for item in getattr(report, name)] for name in ("set_aside", "missing")}
    return {**facts, **named, "holds": _holds(report)}


def sentence(report: Report) -> str:
    """Returns what a run did, in one line."""
    return (
        f"{report.files} landing files: {report.rows_in} rows in = {report.new} new + {report.duplicates} duplicates "
        f"+ {report.quarantined} quarantined; {report.readings} readings"
        + (f"; {len(report.set_aside)} files set aside" if report.set_aside else "")
        + ("; landing files are missing" if report.missing else "")
    )
