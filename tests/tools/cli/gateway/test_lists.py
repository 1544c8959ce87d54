"""``holdfast gateway devices`` and ``quarantine`` beside a gateway that runs, and after its end."""

import json
from pathlib import Path

import pytest
from typer.testing import Result

from gateway.store.sqlite.quarantine import Note, set_aside
from tests.support.command import holdfast
from tests.tools.cli.gateway.running import Gateway, check, publish


def ask(what: str, gateway: Gateway, *options: str) -> Result:
    return holdfast("gateway", what, str(gateway.path), *options)


def test_the_devices_are_listed_while_the_gateway_runs_and_after_its_end(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    with gateway.running() as process:
        assert json.loads(ask("devices", gateway, "--json").stdout) == []
        assert publish(gateway.port, "-i", "bell-1") == 0
        assert ask("devices", gateway).exit_code == 0
        process.stop()
    (device,) = json.loads(check("gateway", "devices", str(gateway.path), "--json").stdout)
    assert (device["client_id"], device["level"], device["connected"]) == ("bell-1", 5, False)
    heading, line = ask("devices", gateway).stdout.splitlines()
    assert heading.split()[:3] == ["client", "user", "from"]
    assert line.split()[:5] == ["bell-1", "-", "127.0.0.1", "5.0", "no"]


def test_what_was_set_aside_is_listed(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    with gateway.running():
        assert ask("quarantine", gateway).stdout == "nothing was set aside\n"
    set_aside(tmp_path / "store", [Note("messages.sqlite", "the messages at positions 3 to 4", "corrupt", "in it", 2)])
    assert (
        "Z messages.sqlite: the messages at positions 3 to 4, 2 messages: corrupt" in ask("quarantine", gateway).stdout
    )
    (note,) = json.loads(ask("quarantine", gateway, "--json").stdout)
    assert note["messages"] == 2


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    (tmp_path / "store").mkdir()
    for what, file in (("devices", "devices.sqlite"), ("quarantine", "quarantine.sqlite")):
        (tmp_path / "store" / file).write_bytes(b"no database" * 1000)
        asked = ask(what, gateway)
        assert asked.exit_code == 2
        assert f"holdfast gateway {what}: " in asked.stderr and "file is not a database" in asked.stderr


@pytest.mark.parametrize("command", ["devices", "quarantine"])
def test_a_store_that_does_not_exist_has_no_list(tmp_path: Path, command: str) -> None:
    gateway = Gateway(tmp_path)
    complaint = f"holdfast gateway {command}: message store {tmp_path}/store: there is none\n"
    for _ in range(2):
        asked = ask(command, gateway, "--json")
        assert (asked.exit_code, asked.stdout, asked.stderr) == (2, "", complaint)
        (tmp_path / "store").mkdir(exist_ok=True)  # an empty folder is no store either


@pytest.mark.parametrize("command", ["run", "check-config", "repair", "new-epoch", "devices", "quarantine"])
def test_each_command_takes_its_configuration_as_file_or_as_option(tmp_path: Path, command: str) -> None:
    absent = str(tmp_path / "absent.toml")
    for given in ([absent], ["--config", absent]):
        done = holdfast("gateway", command, *given)
        assert (done.exit_code, done.stderr) == (
            1 if command == "run" else 2,  # its disk may be mounted later, and the service tries again
            f"holdfast gateway {command}: {absent}: No such file or directory\n",
        )
    done = holdfast("gateway", command, absent, "--config", absent)
    assert (done.exit_code, done.stderr) == (2, f"holdfast gateway {command}: expected FILE or --config, got both\n")
