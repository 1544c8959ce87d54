"""The suite as its users run it, against real brokers."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.house.repository import ROOT
from tests.support.result_shape import faults_of
from tools.lab.check.chapters import load
from tools.lab.check.conformance import MOSQUITTO, mosquitto_faults
from tools.lab.check.outcome import Outcome
from tools.lab.check.report import judge
from tools.lab.check.runner import run
from tools.lab.check.subject import Address
from tools.lab.check.suite import Check
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process

HOLDFAST = (sys.executable, "-m", "tools.cli.main")
USER, PASSWORD = "checker", b"of brokers"
HOST = "127.0.0.1"


class SilentHandler(BaseHTTPRequestHandler):
    """Answers requests that are not HTTP with an error, and logs nothing."""

    def log_message(self, format: str, *args: object) -> None:
        pass


def holdfast(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*HOLDFAST, *arguments], cwd=ROOT, capture_output=True, input=stdin)


def needs_account(check: Check) -> bool:
    return check.function.__module__.endswith(".authentication")


def failures(outcomes: list[Outcome]) -> dict[tuple[str, str], str]:
    return {
        (one.version, one.name): f"expected {one.expected}; came {one.came}" for one in outcomes if one.result == "fail"
    }


@contextmanager
def gateway(folder: Path, settings: str = "") -> Iterator[int]:
    """`holdfast gateway run` with these settings; yields its port."""
    config, port = folder / "gateway.toml", free_port()
    config.write_text(
        f'name = "checked"\n{settings}store = {{path = "store", volatile = true}}\n'
        f'[[listener]]\nkind = "tcp"\nport = {port}\n'
    )
    process = Process("gateway", [*HOLDFAST, "gateway", "run", "--config", str(config)])
    with _running(process):
        process.says(" event=ready ")
        yield port


@contextmanager
def mosquitto(folder: Path) -> Iterator[int]:
    """mosquitto with its default settings; yields its port."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    assert program, "mosquitto is not installed (apt install mosquitto mosquitto-clients)"
    port = free_port()
    config = folder / "mosquitto.conf"
    config.write_text(f"listener {port} {HOST}\nallow_anonymous true\n")
    process = Process("mosquitto", [program, "-c", str(config)])
    with _running(process):
        process.listens(port)
        yield port


@contextmanager
def _running(process: Process) -> Iterator[None]:
    process.start()
    try:
        yield
    finally:
        process.stop()


async def test_our_broker_keeps_every_statement(tmp_path: Path) -> None:
    checks = [check for check in load() if not needs_account(check)]
    with gateway(tmp_path) as port:
        outcomes = await run(checks, Address(HOST, port))
    assert failures(outcomes) == {}
    assert [(one.version, one.name, one.came) for one in outcomes if one.result == "skip"] == []


async def test_our_broker_keeps_every_statement_about_authentication(tmp_path: Path) -> None:
    done = holdfast("gateway", "passwd", str(tmp_path / "accounts"), USER, "--scram", stdin=PASSWORD + b"\n")
    assert done.returncode == 0, done.stderr
    checks = [check for check in load() if needs_account(check)]
    with gateway(tmp_path, 'accounts = "accounts"\n') as port:
        outcomes = await run(checks, Address(HOST, port, USER, PASSWORD))
    assert {one.result for one in outcomes} == {"pass"}, failures(outcomes)


async def test_mosquitto_has_the_faults_on_the_page_and_no_others(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        version = subprocess.run(["mosquitto", "-h"], capture_output=True, text=True).stdout.split()[2]
        if version != MOSQUITTO:
            pytest.skip(f"the page tells of mosquitto {MOSQUITTO}, this is {version}")
        outcomes = await run(load(), Address(HOST, port))
    assert failures(outcomes).keys() == mosquitto_faults().keys()


def test_command_reports_and_ends_with_1_where_a_statement_is_broken(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        done = holdfast("check", "broker", "--port", str(port), "--version", "3.1.1", "--json")
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert faults_of(report, "check") == []
    assert {one["version"] for one in report["checks"]} == {"3.1.1"}
    broken = [one for one in report["checks"] if one["result"] == "fail"]
    assert report["broken"] == len(broken) > 0
    assert all(one["expected"] and one["came"] and one["clauses"] for one in broken)


def test_command_ends_with_2_if_no_broker_listens() -> None:
    done = holdfast("check", "broker", "--port", str(free_port()))
    assert done.returncode == 2
    assert b"no broker at" in done.stderr and b": Connection refused" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("options", [[], ["--user", USER], ["--user", USER, "--password", "wrong"]])
def test_command_ends_with_2_before_the_first_check_where_the_broker_refuses_the_login(
    tmp_path: Path, options: list[str]
) -> None:
    holdfast("gateway", "passwd", str(tmp_path / "accounts"), USER, stdin=PASSWORD + b"\n")
    with gateway(tmp_path, 'accounts = "accounts"\n') as port:
        done = holdfast("check", "broker", "--port", str(port), *options)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert b"refuses this login: " in done.stderr


def test_command_ends_with_2_where_the_port_speaks_no_mqtt() -> None:
    server = ThreadingHTTPServer((HOST, 0), SilentHandler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        done = holdfast("check", "broker", "--port", str(server.server_port))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert b"no MQTT broker at" in done.stderr


def test_command_names_a_host_that_cannot_be_found() -> None:
    done = holdfast("check", "broker", "--host", "broker.invalid")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert b"no broker at broker.invalid:1883: " in done.stderr and b"nknown error" not in done.stderr


@pytest.mark.long
async def test_an_account_with_the_rule_on_the_page_breaks_nothing_and_is_offered_no_scram(tmp_path: Path) -> None:
    holdfast("gateway", "passwd", str(tmp_path / "accounts"), USER, stdin=PASSWORD + b"\n")
    (tmp_path / "access").write_text(f"allow {USER} publish,subscribe hfcheck/#\n")
    with gateway(tmp_path, 'accounts = "accounts"\nacl = "access"\n') as port:
        outcomes = await run(load(), Address(HOST, port, USER, PASSWORD))
    assert failures(outcomes) == {}
    skipped = {one.name: one.came for one in outcomes if one.result == "skip"}
    assert set(skipped.values()) == {"the broker does not let this account log in by SCRAM-SHA-256"}
    assert len(skipped) == 4


async def test_what_needs_an_account_is_not_counted_as_not_offered_without_one(tmp_path: Path) -> None:
    checks = [check for check in load() if needs_account(check)]
    with gateway(tmp_path) as port:
        outcomes = await run(checks, Address(HOST, port))
    assert {one.result for one in outcomes} == {"unchecked"}
    assert judge(outcomes).more["not_offered"] == 0
