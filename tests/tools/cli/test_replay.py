"""`holdfast replay` publishes a CSV file's rows with their own times."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.support.subscriber import subscriber
from tools.cli.main import make_app
from tools.lab.testing.mosquitto import Mosquitto, mosquitto

CSV = "timestamp,value\n2013-12-02 21:15:00,73.97\n2013-12-02 22:20:00+01:00,74.94\n"


def replay(*arguments: str) -> Result:
    return CliRunner().invoke(make_app(), ["replay", *arguments])


def test_each_row_is_a_reading_at_its_time(tmp_path: Path) -> None:
    (tmp_path / "machine.csv").write_text(CSV)
    options = ["--device", "machine", "--metric", "temperature", "--unit", "Cel"]
    with mosquitto(tmp_path) as port, subscriber(port, "telemetry/#") as received:
        done = replay(str(tmp_path / "machine.csv"), *options, "--broker", f"mqtt://127.0.0.1:{port}")
        assert (done.exit_code, done.stdout) == (0, "2 messages are with the broker\n"), done.output
        first, second = received.get(timeout=30), received.get(timeout=30)
    assert (first.topic, first.qos) == ("telemetry/machine", 1)
    named = {"bn": "machine:", "bu": "Cel", "n": "temperature"}
    assert json.loads(first.payload) == [{**named, "bt": 1_386_018_900.0, "v": 73.97}]
    assert json.loads(second.payload) == [{**named, "bt": 1_386_019_200.0, "v": 74.94}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time\n", "line 1: expected a column of times and at least one of numbers"),
        ("time,a\n2026-01-01,1\nyesterday,2\n", "line 3: expected an ISO time, found 'yesterday'\n"),
        ("time,a\n2026-01-01,much\n", "line 2: expected a finite number, found 'much'\n"),
        ("time,a\n2026-01-01,nan\n", "line 2: expected a finite number, found 'nan'\n"),
        ("time,a,b\n2026-01-01,1\n", "line 2: expected 3 cells, found 2\n"),
        ("time,a\n2026-01-01,1\n\n2026-01-02\n", "line 4: expected 2 cells, found 1\n"),
        ("time,a\n2026-01-01,1,5\n", "line 2: expected 2 cells, found 3\n"),
        (
            "time;a\n2026-01-01;1,5\n",
            "line 1: expected commas between the cells, and a point in numbers; found semicolons\n",
        ),
        ("2026-01-01,1\n2026-01-02,2\n", "line 1: expected a header and not a time"),
        ("time,w\N{LATIN SMALL LETTER A WITH DIAERESIS}rme\n2026-01-01,1\n", "expected UTF-8"),
    ],
)
def test_bad_row_is_named_and_nothing_is_published(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "bad.csv").write_text(text, encoding="latin-1")
    done = replay(str(tmp_path / "bad.csv"), "--broker", "mqtt://127.0.0.1:1")
    assert done.exit_code == 2
    assert said in done.stderr


def test_broker_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "machine.csv").write_text(CSV)
    assert replay(str(tmp_path / "machine.csv"), "--broker", "mqtt://127.0.0.1:1").exit_code == 2
    done = replay(str(tmp_path / "machine.csv"), "--broker", "localhost")
    assert done.stderr == "holdfast replay: --broker: 'localhost', expected mqtt://host:port\n"


@pytest.mark.parametrize("broker", ["mqtt://127.0.0.1:99999", "mqtt://127.0.0.1:much", "mqtt://[::1", "mqtt://host:0"])
def test_broker_with_an_impossible_address_is_an_error(tmp_path: Path, broker: str) -> None:
    (tmp_path / "machine.csv").write_text(CSV)
    done = replay(str(tmp_path / "machine.csv"), "--broker", broker)
    assert done.exit_code == 2, done.output
    assert done.stderr == f"holdfast replay: --broker: {broker!r}, expected mqtt://host:port\n"


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "machine.csv").write_text(CSV + "\n\n")
    with mosquitto(tmp_path) as port:
        done = replay(str(tmp_path / "machine.csv"), "--broker", f"mqtt://127.0.0.1:{port}")
    assert (done.exit_code, done.stdout) == (0, "2 messages are with the broker\n"), done.output


@pytest.mark.parametrize("device", ["", "hall/#", "+"])
def test_device_that_cannot_be_in_a_topic_is_an_error(tmp_path: Path, device: str) -> None:
    (tmp_path / "machine.csv").write_text(CSV)
    with mosquitto(tmp_path) as port:
        done = replay(str(tmp_path / "machine.csv"), "--device", device, "--broker", f"mqtt://127.0.0.1:{port}")
    assert done.exit_code == 2, done.output
    assert done.stderr == f"holdfast replay: --device {device}: expected a name without + and #\n"


def test_messages_that_the_broker_refuses_are_an_error(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("topic read telemetry/#\n")
    rules.chmod(0o644)
    (tmp_path / "machine.csv").write_text(CSV)
    broker = Mosquitto(tmp_path, f"acl_file {rules}\n", is_persistent=False)
    broker.start()
    try:
        done = replay(str(tmp_path / "machine.csv"), "--broker", f"mqtt://127.0.0.1:{broker.port}")
    finally:
        broker.stop()
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "holdfast replay: the server refuses a message: not authorized (0x87)\n"
