"""`holdfast cloud ingest` as a command that runs."""

import fcntl
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from cloud import Report
from cloud.job.plan import SetAside
from tests.cloud.messages import land, row
from tests.support.subscriber import subscriber
from tools.cli.tables.ingest import app
from tools.cli.tables.receipts import Audience, Done
from tools.lab.testing.mosquitto import mosquitto
from tools.lab.testing.ports import free_port
from wire.receipt import decode_landed, decode_receipt


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    return folder


@pytest.fixture
def running(landing: Path, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    arguments = ["cloud", "ingest", "--landing", str(landing), "--tables", str(tmp_path / "tables"), "--json"]
    settings = ["--every", "0.1s", "--master", "local[1]", "--conf", "spark.driver.memory=1g"]
    command = [sys.executable, "-m", "tools.cli.main", *arguments, *settings]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        yield process
        process.kill()


def files_of_next_run(process: "subprocess.Popen[str]") -> int:
    """Returns the files of the next run that took in some."""
    assert process.stdout is not None
    for line in process.stdout:
        if line[0] == "{" and (files := json.loads(line)["files"]):
            return int(files)
    raise AssertionError("the job ended")


def test_job_that_runs_takes_in_what_lands_waits_for_another_command_and_ends_when_told(
    landing: Path, tmp_path: Path, running: "subprocess.Popen[str]"
) -> None:
    land(landing, [row(1)])
    assert files_of_next_run(running) == 1
    land(landing, [row(2)], [row(3)], boot=2)
    if files_of_next_run(running) == 1:  # it looked between the two
        assert files_of_next_run(running) == 1
    with (tmp_path / "tables" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        land(landing, [row(4)], boot=3)
        assert running.stdout is not None
        assert any("another job is working on the tables" in line for line in running.stdout)
    assert files_of_next_run(running) == 1
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 0


def test_job_that_runs_tells_a_fault_once_and_nothing_of_runs_that_found_nothing(
    landing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty, missing = Report(), Report(missing=[SetAside("a-*-2", "a has no file with the number 2")])
    more = Report(missing=[*missing.missing, SetAside("a-*-4", "a has no file with the number 4")])
    full = [OSError(28, "No space left on device", f"/tables/part-{place}-{uuid4()}.parquet") for place in range(3)]
    one_file = Report(batches=1, files=1, rows_in=2, new=2)
    outcomes: Iterator[Report | OSError] = iter(
        [empty, empty, one_file, empty, *full, OSError("another"), empty, empty, missing, missing, more, more, empty]
    )
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT)]

    def run(*_: object, **__: object) -> Report:
        if (outcome := next(outcomes, None)) is None:
            signal.raise_signal(signal.SIGTERM)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome or empty

    monkeypatch.setattr("tools.cli.tables.ingest.ingest", run)
    monkeypatch.setattr("tools.cli.tables.ingest.open_session", lambda *_, **__: None)
    try:
        folders = ["--landing", str(landing), "--tables", str(tmp_path / "tables")]
        ended = CliRunner().invoke(app, [*folders, "--every", "0.001s"])
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)
    assert ended.exit_code == 0
    aside = "0 quarantined (undecodable or in conflict)"
    nothing = f"0 landing files: 0 rows in = 0 new and decoded + 0 duplicates + {aside}; 0 readings"
    assert ended.stdout.splitlines() == [
        nothing,
        f"1 landing files: 2 rows in = 2 new and decoded + 0 duplicates + {aside}; 0 readings",
        nothing,  # the disk is no longer full
        f"{nothing}; landing files are missing",
        nothing,
    ]
    assert ended.stderr.splitlines() == [
        f"holdfast cloud ingest: {full[0]}",
        "holdfast cloud ingest: another",
        "holdfast cloud ingest: missing a-*-2: a has no file with the number 2",
        "holdfast cloud ingest: missing a-*-4: a has no file with the number 4",
    ]


@pytest.mark.usefixtures("spark")
def test_decoder_that_cannot_be_loaded_ends_the_command_with_2_and_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "meters.py"
    file.write_text("from cloud import decoder\n")
    folders = ["--landing", str(tmp_path), "--tables", str(tmp_path / "tables")]
    done = CliRunner().invoke(app, [*folders, "--decoder", str(file)])
    assert done.exit_code == 2
    assert f"{file} has no function that is marked with @decoder" in done.stderr
    assert not (tmp_path / "tables").exists()


@pytest.mark.usefixtures("spark")
def test_broker_is_told_after_the_run_and_a_run_without_it_ends_with_1_and_is_made_up_for(
    landing: Path, tmp_path: Path
) -> None:
    tables, port = tmp_path / "tables", free_port()
    folders = ["--landing", str(landing), "--tables", str(tables), "--receipts", f"mqtt://127.0.0.1:{port}"]
    land(landing, [row(1), row(2)])
    away = CliRunner().invoke(app, folders)
    assert away.exit_code == 1
    assert away.stdout.startswith("1 landing files: 2 rows in")
    assert away.stderr.startswith(f"holdfast cloud ingest: mqtt://127.0.0.1:{port}: ")
    with mosquitto(tmp_path, port), subscriber(port, "hf/receipt/#") as received:
        back = CliRunner().invoke(app, folders)
        assert back.exit_code == 0, back.output
        assert "1 receipts up to batch 1 are with the broker" in back.stdout
        (origin, landed) = [received.get(timeout=30) for _ in range(2)]
        assert decode_receipt(origin.payload).epochs[0].high == 2
        assert decode_landed(landed.payload).landed_ms > 0
        assert "receipts" not in CliRunner().invoke(app, folders).stdout


def test_job_that_runs_says_once_that_its_broker_is_away_and_says_when_it_was_told(
    landing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = OSError("mqtt://127.0.0.1:1: Connect call failed")
    told: list[OSError | Done] = [away, away, Done(7, 2, True, 0), Done(7, 0, False, 0)]
    outcomes = iter(told)
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT)]

    def publish(*_: object) -> Done:
        outcome = next(outcomes)
        if isinstance(outcome, OSError):
            raise outcome
        if not outcome.receipts:
            signal.raise_signal(signal.SIGTERM)
        return outcome

    monkeypatch.setattr("tools.cli.tables.ingest.ingest", lambda *_, **__: Report())
    monkeypatch.setattr("tools.cli.tables.ingest.open_session", lambda *_, **__: None)
    monkeypatch.setattr(Audience, "publish", publish)
    try:
        folders = ["--landing", str(landing), "--tables", str(tmp_path / "tables")]
        ended = CliRunner().invoke(app, [*folders, "--every", "0.001s", "--receipts", "mqtt://127.0.0.1:1"])
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)
    assert (ended.exit_code, ended.stderr) == (0, f"holdfast cloud ingest: {away}\n")
    assert [line for line in ended.stdout.splitlines() if "receipts" in line] == [
        "2 receipts up to batch 7 are with the broker; the broker had none of these tables"
    ]
