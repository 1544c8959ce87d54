"""The line to an object store: each fault is what its name says, and a kill is at the request that was chosen."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
import typer
from typer.testing import CliRunner

from tests.cloud.object_store import Server
from tests.support.result_shape import faults_of
from tools.cli.paths import source_root
from tools.lab.testing.object_store import BUCKET
from tools.lab.torture.cloud import command
from tools.lab.torture.cloud import line as line_module
from tools.lab.torture.cloud.line import LATE_FAULTS, LATE_KILLS, StoreLine

MakeLine = Callable[..., StoreLine]
app = typer.Typer()
app.command()(command.cloud)
PROCESS = """
import sys
from http.client import HTTPConnection
from tools.lab.torture.cloud.cutters import RequestCutter

port, at, name = sys.argv[1:]
cutter = RequestCutter(f"s3://lake/?endpoint_override=127.0.0.1:{port}")
cutter.begin(int(at))
for number in range(4):
    connection = HTTPConnection("127.0.0.1", int(port))
    connection.request("PUT", f"/lake/{name}-{number}", b"1", {"Authorization": "AWS lander:unread"})
    connection.getresponse().read()
print(cutter.spare())
"""


@pytest.fixture(scope="module")
def store() -> Iterator[Server]:
    server = Server()
    server.start()
    yield server
    server.process.stop()


@pytest.fixture
def make_line(store: Server) -> Iterator[MakeLine]:
    lines: list[StoreLine] = []

    def make(share: float = 0, faults: tuple[str, ...] = LATE_FAULTS, kills: tuple[str, ...] = LATE_KILLS) -> StoreLine:
        lines.append(StoreLine(store.port, threading.Lock(), 1, share, faults, kills))
        return lines[-1]

    yield make
    for line in lines:
        line.close()


def ask(port: int, method: str, name: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes] | None:
    """Returns the status and the body of an answer; None where it does not come, or not whole."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, f"/{BUCKET}/{name}", body, {"Authorization": "AWS lander:unread", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("fault", "status", "is_done"),
    [
        ("delayed", 200, True),
        ("cut before", None, False),
        ("cut after", None, True),
        ("late", None, True),
        ("503", 503, False),
        ("503 though done", 503, True),
    ],
)
def test_each_fault_answers_and_does_what_its_name_says(
    store: Server, make_line: MakeLine, fault: str, status: int | None, is_done: bool
) -> None:
    line = make_line(1, (fault,))
    answer = ask(line.port, "PUT", name := f"fault {fault}".replace(" ", "-"), b"content")
    line.settle()  # waits for what is late
    assert (answer[0] if answer else None) == status
    assert line.struck == {f"request {fault}": 1}
    found = ask(store.port, "GET", name)
    assert found is not None
    assert (found[0], found[1] == b"content") == ((200, True) if is_done else (404, False))
    assert (after := ask(line.port, "GET", name)) is not None
    assert after[0] == found[0]  # it lets all through now


def test_an_answer_that_is_cut_within_is_not_whole(store: Server, make_line: MakeLine) -> None:
    assert ask(store.port, "PUT", "within", b"content")
    assert ask(make_line(1, ("cut within",)).port, "GET", "within") is None


def test_requests_fail_for_a_while_from_one_on_and_not_before(make_line: MakeLine) -> None:
    line = make_line()
    line.fail_at(1)
    statuses = [answer and answer[0] for answer in (ask(line.port, "PUT", "away", b"1") for _ in range(3))]
    assert statuses == [200, 503, 503]
    line.settle()
    assert ask(line.port, "GET", "away") == (200, b"1")


def test_requests_are_held_from_one_on_until_they_are_released(store: Server, make_line: MakeLine) -> None:
    line = make_line()
    line.hold_at(1)
    assert ask(line.port, "PUT", "held-0", b"1") == (200, b"")
    assert not line.is_held(0)
    answers: list[tuple[int, bytes] | None] = []
    asking = threading.Thread(target=lambda: answers.append(ask(line.port, "PUT", "held-1", b"1")))
    asking.start()
    assert line.is_held(60)
    found = ask(store.port, "HEAD", "held-1")
    assert (answers, found and found[0]) == ([], 404)
    line.release()
    asking.join()
    assert answers == [(200, b"")]


def test_line_that_is_never_released_lets_all_through_again(
    make_line: MakeLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_module, "HELD_S", 0.01)
    line = make_line()
    line.hold_at(0)
    assert ask(line.port, "PUT", "alone", b"1") == (200, b"")
    assert line.is_held(0)
    monkeypatch.setattr(line_module, "HELD_S", 3600)  # `ask` gives up before
    assert ask(line.port, "GET", "alone") == (200, b"1")


def test_one_of_two_that_create_an_object_at_once_does(make_line: MakeLine) -> None:
    line = make_line()
    statuses: list[int | None] = []

    def create() -> None:
        answer = ask(line.port, "PUT", "once", b"1", **{"if-none-match": "*"})  # as the jobs' libraries write it
        statuses.append(answer[0] if answer else None)

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, statuses)) == ["200", *["412"] * 7]


@pytest.mark.parametrize(("kill", "there"), [("before", 2), ("after", 3), ("late", 3)])
def test_process_is_killed_at_the_request_that_was_chosen(
    store: Server, make_line: MakeLine, kill: str, there: int
) -> None:
    line = make_line(kills=(kill,))
    assert run(line, 2, kill).returncode == -signal.SIGKILL
    line.settle()
    found = [ask(store.port, "HEAD", f"{kill}-{number}") for number in range(4)]
    assert [one is not None and one[0] == 200 for one in found] == [number < there for number in range(4)]


def test_process_that_has_done_all_is_not_killed_and_knows_its_requests(make_line: MakeLine) -> None:
    line = make_line()
    done = run(line, 4, "spared")
    assert (done.returncode, done.stdout) == (0, "4\n")
    assert ask(line.port, "HEAD", "spared-0") == (200, b"")  # the fifth request


def run(line: StoreLine, at: int, name: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", PROCESS, str(line.port), str(at), name],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source_root())},
    )


def test_torture_ends_with_2_where_there_is_no_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    done = CliRunner().invoke(app, ["--s3", "--quick"])
    assert done.exit_code == 2
    assert "moto_server is not installed" in done.stderr


@pytest.mark.long
@pytest.mark.timeout(900)
def test_sample_of_the_torture_with_two_jobs_in_an_object_store_holds(seed: int, store: Server) -> None:
    done = CliRunner().invoke(app, ["--s3", "--quick", "--json", "--seed", str(seed)])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout.splitlines()[-1])
    assert faults_of(report, "torture") == []
    assert (report["holds"], report["messages"] > 0, report["steps"], report["s3"]) == (True, True, 6, True)
