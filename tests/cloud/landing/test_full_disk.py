"""A lander without room on its disk keeps the connection, and acknowledges nothing until there is room."""

import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cloud.landing.running_lander import DEADLINE_S, landed, wait_until
from tests.cloud.landing.script import Visit, broker
from tools.lab.testing.process import Process
from wire.properties import SERVER_KEEP_ALIVE

SECOND = {SERVER_KEEP_ALIVE: 1}


@contextmanager
def lander(port: int, landing: Path, **environment: str) -> Iterator[Process]:
    options = {"--broker": f"mqtt://127.0.0.1:{port}", "--landing": str(landing), "--roll-seconds": "0.1"}
    argv = [sys.executable, "-m", "tools.cli.main", "lander", "run", "--volatile"]
    process = Process(
        "lander", [*argv, *[word for option in options.items() for word in option]], environment=environment
    )
    process.start()
    try:
        process.says("connected")
        yield process
    finally:
        process.stop()


def limit_files(process: Process, size: int) -> None:
    """From now on a write beyond this size fails in each file of the process, as on a full disk."""
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, -1))


def publish_on_full_disk(visit: Visit, started: list[Process]) -> None:
    """Fills the disk of the lander, once it is started, and sends it a message, which it does not acknowledge."""
    while not started:
        visit.receive()
    limit_files(started[0], 100)
    visit.publish("x", b"1", 1)
    visit.serve()
    assert visit.acknowledged == []


@pytest.mark.parametrize(
    ("count", "size"), [(5, 10), (1140, 60_000)], ids=["with room in memory", "with as much in memory as may be"]
)
def test_a_full_disk_keeps_the_connection_and_what_the_broker_sent(landing: Path, count: int, size: int) -> None:
    payloads = [b"%010d" % number + bytes(size - 10) for number in range(1, count + 1)]
    started: list[Process] = []

    def publish(visit: Visit) -> None:
        while not started:
            visit.receive()
        limit_files(started[0], 100)
        for identifier, payload in enumerate(payloads, start=1):
            visit.publish("x", payload, identifier)
        visit.receive_until(lambda packet: visit.pings >= 4)  # each of them after a second of silence
        assert (visit.acknowledged, landed(landing)) == ([], [])
        limit_files(started[0], 1 << 40)
        visit.receive_until(lambda packet: len(visit.acknowledged) == count)

    with broker(publish, connack=SECOND) as port, lander(port, landing) as process:
        started.append(process)
        wait_until(lambda: len(landed(landing)) == count, "all messages")
    assert [row["payload"] for row in landed(landing)] == payloads
    assert any("cannot land" in line for line in process.lines)


def test_a_lander_that_is_told_to_stop_on_a_full_disk_ends_with_1_and_leaves_all_to_the_broker(landing: Path) -> None:
    started: list[Process] = []

    def publish(visit: Visit) -> None:
        publish_on_full_disk(visit, started)

    with broker(publish, connack=SECOND) as port, lander(port, landing) as process:
        started.append(process)
        process.says("cannot land")
        process.signal(signal.SIGTERM)
        code, lines = process.ended(DEADLINE_S)
    assert code == 1
    assert re.search(r"File too large.*; the broker keeps the rest", lines[-1])
    assert [path for path in landing.iterdir() if path.suffix in (".parquet", ".json")] == []


def test_a_lander_whose_disk_was_full_starts_again(landing: Path, tmp_path: Path) -> None:
    """Also where Python keeps the modules that it compiles on that disk."""
    started: list[Process] = []

    def publish(visit: Visit) -> None:
        publish_on_full_disk(visit, started)

    cache = {"PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode")}
    with broker(publish, publish, connack=SECOND) as port:
        for _ in range(2):
            started.clear()
            with lander(port, landing, **cache) as process:
                started.append(process)
                process.says("cannot land")


def test_a_lander_lands_on_while_the_disk_with_its_output_is_full(landing: Path) -> None:
    def publish(visit: Visit) -> None:
        visit.publish("x", b"1", 1)
        visit.receive_until(lambda packet: len(visit.acknowledged) == 1)

    with broker(publish, connack=SECOND) as port, open("/dev/full", "w") as full:
        options = ["--broker", f"mqtt://127.0.0.1:{port}", "--landing", str(landing), "--roll-seconds", "0.1"]
        argv = [sys.executable, "-m", "tools.cli.main", "lander", "run", "--volatile", *options]
        with subprocess.Popen(argv, stdout=full) as process:
            wait_until(lambda: len(landed(landing)) == 1 or process.poll() is not None, "a message")
            process.terminate()
    assert [row["payload"] for row in landed(landing)] == [b"1"]
