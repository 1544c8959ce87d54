"""``holdfast gateway devices`` and ``quarantine`` beside a gateway that runs, and after its end."""

import json
import subprocess
from pathlib import Path

from gateway.store.quarantine import Note, set_aside
from tests.house.repository import ROOT
from tests.tools.test_gateway_process import HOLDFAST, LONG_S, Gateway, publish


def ask(what: str, gateway: Gateway, *options: str) -> subprocess.CompletedProcess[str]:
    command = [*HOLDFAST, "gateway", what, str(gateway.path), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LONG_S, check=False)


def test_the_devices_are_listed_while_the_gateway_runs_and_after_its_end(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    assert json.loads(ask("devices", gateway, "--json").stdout) == []
    with gateway.running() as process:
        assert publish(gateway.port, "-i", "bell-1") == 0
        assert ask("devices", gateway).returncode == 0
        process.terminate()
        process.wait(LONG_S)
    (device,) = json.loads(ask("devices", gateway, "--json").stdout)
    assert (device["client_id"], device["level"], device["connected"]) == ("bell-1", 5, False)
    heading, line = ask("devices", gateway).stdout.splitlines()
    assert heading.split()[:3] == ["client", "user", "from"]
    assert line.split()[:5] == ["bell-1", "-", "127.0.0.1", "5.0", "no"]


def test_what_was_set_aside_is_listed(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    assert ask("quarantine", gateway).stdout == "nothing was set aside\n"
    (tmp_path / "store").mkdir()
    set_aside(tmp_path / "store", [Note("messages.sqlite", "the messages at positions 3 to 4", "spoilt", "in it", 2)])
    assert (
        "Z messages.sqlite: the messages at positions 3 to 4, 2 messages: spoilt" in ask("quarantine", gateway).stdout
    )
    (note,) = json.loads(ask("quarantine", gateway, "--json").stdout)
    assert note["messages"] == 2


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    (tmp_path / "store").mkdir()
    for what, file in (("devices", "devices.sqlite"), ("quarantine", "quarantine.sqlite")):
        (tmp_path / "store" / file).write_bytes(b"no database" * 1000)
        asked = ask(what, gateway)
        assert asked.returncode == 2
        assert f"holdfast gateway {what}: " in asked.stderr and "file is not a database" in asked.stderr
