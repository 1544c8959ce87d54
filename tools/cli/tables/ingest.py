"""``holdfast cloud ingest``: from landing files into tables."""

import re
import signal
import time
from dataclasses import dataclass
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
from host.credentials import Credentials
from tools.cli.failure import complain, fail, failing_on, say
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
from tools.cli.tables.interval import parse_interval, wait_s
from tools.cli.tables.receipts import (
    UNPUBLISHED,
    Audience,
    Authorities,
    Certificate,
    Done,
    Key,
    PasswordFile,
    Signing,
    User,
    find_audience,
)

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
    receipts: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="The broker to be told after each run what the tables hold, mqtt://host:port."
        ),
    ] = None,
    user: User = None,
    password_file: PasswordFile = None,
    ca: Authorities = None,
    certificate: Certificate = None,
    key: Key = None,
    signing_key: Signing = None,
    master: Master = MASTER_DEFAULT,
    conf: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Bring the landing files that are new since the last run into the tables, each message once."""
    landed, folder = find_folders(landing, tables)
    settings = parse_settings(conf)
    login = Credentials(user, password_file, ca, certificate, key)
    if receipts is None and (signing_key or login != Credentials()):
        fail(COMMAND, "--receipts: expected the broker that the other options are for")
    audience = find_audience(COMMAND, "--receipts", receipts, login, signing_key) if receipts else None
    job = _Job(landed, folder, decoder or [], audience)
    if "://" not in str(landed) and not Path(landed).is_dir():
        fail(COMMAND, f"the landing folder {Path(landed).absolute()} does not exist")
    with failing_on(SparkMissing, command=COMMAND):
        open_session(cache_directory(), master=master, settings=settings, long_run=every is not None)
    if every is None:
        with failing_on(JobRunning, OSError, command=COMMAND):
            report = job.run()
        sound = tell(COMMAND, report, sentence(report), as_json)
        with failing_on(*UNPUBLISHED, command=COMMAND, exit_code=1):
            _tell_published(job.publish(), as_json)
    else:
        sound = _run_every(every, job, as_json)
    if not sound:
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Job:
    """What each run works on, and the audience that is told then."""

    landing: Path | str
    tables: Path | str
    decoders: list[str]
    audience: Audience | None

    def run(self) -> Report:
        """Runs the job once."""
        with (
            failing_on(ProofFailed, LedgerLost, command=COMMAND, exit_code=1),
            failing_on(NewerTables, BadDecoder, command=COMMAND),
        ):
            return ingest(None, self.landing, self.tables, decoders=self.decoders)

    def publish(self) -> Done | None:
        """Publishes receipts of what is durable now, if there is an audience. Raises the errors of UNPUBLISHED."""
        return self.audience.publish(self.tables, self.landing) if self.audience else None


def _run_every(interval_s: float, job: _Job, as_json: bool) -> bool:
    """Runs the job again and again until a signal comes. Returns whether the last run was sound.

    A job runs a thousand times a day: it tells a fault once as long as it lasts, and of no run that found nothing.
    """
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    was_sound = None
    told: set[str] = set()
    while True:
        began_s = time.monotonic()
        report = done = None
        faults: dict[str, str] = {}
        sound = False
        try:
            report = job.run()
            faults = {fault: fault for fault in _faults(report)}
            done = job.publish()
            sound = _holds(report)
        except UNPUBLISHED as error:
            # At the next run the other command may be done, and a full disk, a folder that is away or the broker may
            # be back.
            faults |= {_kind(error): str(error)}
        _complain(COMMAND, [text for fault, text in faults.items() if fault not in told])
        told = set(faults)
        if report and (as_json or report.batches or sound is not was_sound):
            say(_counts(report, sentence(report), as_json))
        _tell_published(done, as_json)
        was_sound = sound
        if stop.wait(wait_s(interval_s, began_s, time.monotonic())):
            return sound


def _tell_published(done: Done | None, as_json: bool) -> None:
    if done and done.receipts and not as_json:
        say(done.sentence)


def _kind(error: Exception) -> str:
    """Returns what an error has in common with the same one in the next run: its numbers and new files differ."""
    return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+", "", str(error))


def tell(command: str, report: Report, text: str, as_json: bool) -> bool:
    """Prints what a run did. Returns whether every landing file could be used."""
    _complain(command, _faults(report))
    print(_counts(report, text, as_json))
    return _holds(report)


def _faults(report: Report) -> list[str]:
    return [
        *(
            f"deleted the rows of batch {batch}, which was interrupted and could not go on; its messages are taken anew"
            for batch in report.taken_back
        ),
        *(f"set aside {item.file}: {item.reason}" for item in report.set_aside),
        *(f"missing {item.file}: {item.reason}" for item in report.missing),
    ]


def _complain(command: str, faults: list[str]) -> None:
    for fault in faults:
        complain(command, fault)


def _counts(report: Report, text: str, as_json: bool) -> str:
    return msgspec.json.encode(_facts(report)).decode() if as_json else text


def _holds(report: Report) -> bool:
    return not report.set_aside and not report.missing


def _facts(report: Report) -> dict[str, object]:
    facts: dict[str, object] = msgspec.to_builtins(report)
    named = {name: [item._asdict() for item in getattr(report, name)] for name in ("set_aside", "missing")}
    return {**facts, **named, "holds": _holds(report)}


def sentence(report: Report) -> str:
    """Returns what a run did, in one line."""
    return (
        f"{report.files} landing files: {report.rows_in} rows in = {report.new} new and decoded "
        f"+ {report.duplicates} duplicates + {report.quarantined} quarantined (undecodable or in conflict); "
        f"{report.readings} readings"
        + (f"; {len(report.set_aside)} files set aside" if report.set_aside else "")
        + ("; landing files are missing" if report.missing else "")
    )
