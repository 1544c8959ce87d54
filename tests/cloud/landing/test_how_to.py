"""The page about running a lander: its unit is what the command takes, and its rules are enough, and not too much."""

import configparser
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cloud.landing.running_lander import RunningLander, landed, publish, wait_until
from tests.cloud.landing.test_credentials import mosquitto, written
from tools.cli.paths import source_root
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process

PAGE = (source_root() / "docs/how-to/run-a-lander.md").read_text()
HOLDFAST = [sys.executable, "-m", "tools.cli.main"]


def rules(first_word: str) -> str:
    """Returns the block of the page that begins with a word."""
    found = re.search(rf"^```text\n({first_word} .*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@contextmanager
def mosquitto_with_rules(folder: Path, password: Path) -> Iterator[tuple[int, int]]:
    """Yields the port of the lander, and one where any client may publish."""
    port = free_port()
    users, acl = folder / "users", folder / "acl"
    subprocess.run(
        ["mosquitto_passwd", "-b", "-c", users, "lander", password.read_text()], check=True, capture_output=True
    )
    acl.write_text(rules("user"))
    for path in (users, acl):
        path.chmod(0o644)
    listener = (f"listener {port} 127.0.0.1", f"password_file {users}", f"acl_file {acl}")
    with mosquitto(folder, *listener) as plain:
        yield port, plain


@contextmanager
def gateway_with_rules(folder: Path, password: Path) -> Iterator[tuple[int, int]]:
    """The same with a Holdfast gateway."""
    port, plain = free_port(), free_port()
    accounts, acl, config = folder / "accounts", folder / "access", folder / "gateway.toml"
    argv = [*HOLDFAST, "gateway", "passwd", str(accounts), "lander"]
    subprocess.run(argv, input=password.read_text() + "\n", text=True, check=True, capture_output=True)
    acl.write_text(rules("allow") + "allow - connect *\nallow - publish #\n")
    listeners = "".join(
        f'[[listener]]\nkind = "tcp"\nhost = "127.0.0.1"\nport = {number}\nallow_anonymous = {allows}\n'
        for number, allows in ((port, "false"), (plain, "true"))
    )
    config.write_text(
        f'name = "g"\naccounts = "accounts"\nacl = "access"\n[store]\npath = "store"\nvolatile = true\n{listeners}'
    )
    process = Process("gateway", [*HOLDFAST, "gateway", "run", "--config", str(config)])
    process.start()
    try:
        process.says("ready")
        yield port, plain
    finally:
        process.stop()


@pytest.mark.parametrize("broker", [mosquitto_with_rules, gateway_with_rules])
def test_the_rules_of_the_page_let_a_lander_read_its_filter_and_nothing_else(
    tmp_path: Path, landing: Path, broker: object
) -> None:
    password = written(tmp_path / "password", "secret of the lander")
    with broker(tmp_path, password) as (port, plain):  # type: ignore[operator]
        is_mosquitto = broker is mosquitto_with_rules  # it grants a filter, and checks each message
        name = "greedy" if is_mosquitto else "lander-1"
        running = RunningLander(port, landing, name, user="lander", password_file=password)
        running.wait_for("connected" if is_mosquitto else f"refuses $share/{name}/#")
        publish(plain, "private/x", [b"private"])
        running.stop()
        running = RunningLander(
            port, landing, "lander-1", topic_filter="telemetry/#", user="lander", password_file=password, group="lander"
        )
        running.wait_for("connected")
        publish(plain, "private/x", [b"private"])
        publish(plain, "telemetry/x", [b"telemetry"])
        wait_until(lambda: bool(landed(landing)), "the message that it may read")
        running.stop()
    assert [row["payload"] for row in landed(landing)] == [b"telemetry"]


def test_the_unit_of_the_page_starts_a_lander(tmp_path: Path) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    found = re.search(r"^```ini\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    unit.read_string(found[1])
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert program == "/opt/holdfast/bin/holdfast"
    places = {
        "/etc/holdfast/lander.password": str(written(tmp_path / "password", "p")),
        "/var/lib/holdfast-lander/landing": str(tmp_path / "landing"),
        "mqtts://central.example.org": f"mqtts://127.0.0.1:{free_port()}",
        "9885": str(free_port()),
    }
    process = Process("lander", [*HOLDFAST, *(places.get(word, word) for word in words)])
    process.start()
    process.says("cannot reach mqtts://127.0.0.1")
    process.stop()
    assert {"2", "3"} == set(unit["Service"]["RestartPreventExitStatus"].split())
