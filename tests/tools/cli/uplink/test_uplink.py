"""``holdfast uplink``: an operator looks at the routes of a gateway that runs, and decides about refused messages."""

import json
import signal
from pathlib import Path

import pytest
from typer.testing import Result

from gateway.store import MESSAGES
from tests.gateway.store.support import stored
from tests.support.command import holdfast
from tests.tools.cli.gateway.running import Gateway, Watched, check, publish

REFUSING = "allow * publish public/#\nallow * publish holdfast/statement/#\nallow * subscribe #\nallow - identify *\n"


def ask(gateway: Gateway, *command: str) -> Result:
    return holdfast("uplink", *command, "--config", str(gateway.path))


def status(gateway: Gateway) -> dict[str, object]:
    (route,) = json.loads(ask(gateway, "status", "--json").stdout)
    assert isinstance(route, dict)
    return route


def wait_until(gateway: Gateway, key: str, value: object) -> dict[str, object]:
    while (found := status(gateway))[key] != value:
        pass
    return found


@pytest.fixture
def central(tmp_path: Path) -> Gateway:
    folder = tmp_path / "central"
    folder.mkdir()
    (folder / "rules").write_text(REFUSING)
    return Gateway(folder, 'acl = "rules"')


def site_of(tmp_path: Path, central: Gateway) -> Watched:
    folder = tmp_path / "site"
    folder.mkdir()
    route = f'[[route]]\nname = "up"\nbroker = "mqtt://127.0.0.1:{central.port}"\nneeds_subscriber = false\n'
    return Watched(folder, listener=route)


def test_refused_messages_are_listed_and_sent_again_when_the_cause_is_gone(tmp_path: Path, central: Gateway) -> None:
    site = site_of(tmp_path, central)
    with central.running() as central_process, site.running():
        for topic in ("public/1", "secret/1", "public/2", "secret/2"):
            assert publish(site.port, "-t", topic) == 0
        found = wait_until(site, "refused_messages", 2)
        found = wait_until(site, "backlog_messages", 0)
        assert (found["name"], found["connected"], found["problem"]) == ("up", True, "")
        heading, line = ask(site, "status").stdout.splitlines()
        assert heading.split()[:4] == ["route", "broker", "link", "waiting"]
        assert line.split()[2:4] == ["up", "0"]
        assert "route up: 2 refused messages are set aside" in site.get("/healthz")[1]
        refused = json.loads(ask(site, "refused", "--json").stdout)
        assert [one["topic"] for one in refused] == ["secret/1", "secret/2"]
        assert "not authorized (0x87)" in ask(site, "refused", "up").stdout
        (tmp_path / "central/rules").write_text("allow * publish,subscribe #\nallow - identify *\n")
        central_process.signal(signal.SIGHUP)
        central.wait_for_event("were read again")
        assert ask(site, "resend", "up").stdout == "2 messages are sent again\n"
        wait_until(site, "refused_messages", 0)
        assert ask(site, "refused").stdout == "no message is set aside\n"


def test_discarded_messages_leave_a_range(tmp_path: Path, central: Gateway) -> None:
    site = site_of(tmp_path, central)
    with central.running(), site.running():
        assert publish(site.port, "-t", "secret/1") == 0
        wait_until(site, "refused_messages", 1)
        assert ask(site, "discard", "up").stdout == "1 message is dropped\n"
        assert status(site)["refused_messages"] == 0
    ranges = stored(tmp_path / "site/store", "SELECT reason, consumer, messages FROM dropped", MESSAGES)
    assert ranges == [("rejected", "route/up", 1)]


def test_a_route_that_is_no_longer_configured_keeps_its_messages_until_it_is_forgotten(
    tmp_path: Path, central: Gateway
) -> None:
    site = site_of(tmp_path, central)
    with site.running():
        for _ in range(3):
            assert publish(site.port, "-t", "public/1") == 0
        assert "'up' is configured" in ask(site, "forget", "up").stderr
    text = site.path.read_text()
    site.path.write_text(text.partition("[[route]]")[0])
    with site.running():
        entry = site.wait_for_event("no longer configured")
        assert "3 messages (39 bytes) are kept" in entry["event"]
        assert publish(site.port, "-t", "public/1") == 0
        found = status(site)
        assert (found["backlog_messages"], found["problem"]) == (4, "it is no longer configured")
        assert ask(site, "forget", "up").stdout == "route up is forgotten; 4 messages waited for it\n"
        assert json.loads(ask(site, "status", "--json").stdout) == []
        assert ask(site, "status").stdout == "there are no routes\n"
        ranges: list[tuple[object, ...]] = []
        while len(ranges) < 4:  # what waited is looked for behind the answer
            ranges = stored(tmp_path / "site/store", "SELECT reason, consumer, messages FROM dropped", MESSAGES)
    assert ranges == [("ended", "route/up", 1)] * 4, "one for each publisher"
    assert not stored(tmp_path / "site/store", "SELECT * FROM route", MESSAGES)


def test_a_route_that_does_not_exist_is_named_with_those_that_do(tmp_path: Path, central: Gateway) -> None:
    site = site_of(tmp_path, central)
    with site.running():
        for command in ("resend", "discard", "forget", "refused"):
            asked = ask(site, command, "down")
            assert (asked.exit_code, asked.stdout) == (1, "")
            assert asked.stderr == f"holdfast uplink {command}: no route 'down'; the routes: 'up'\n"


def test_without_a_gateway_the_commands_say_so(tmp_path: Path, central: Gateway) -> None:
    for command in (["status"], ["refused"], ["resend", "up"], ["discard", "up"], ["forget", "up"]):
        done = ask(central, *command)
        text = f"holdfast uplink {command[0]}: no gateway runs on the store {tmp_path}/central/store\n"
        assert (done.exit_code, done.stderr) == (1, text)


def test_only_the_gateways_user_reaches_the_control_socket(tmp_path: Path, central: Gateway) -> None:
    with central.running():
        socket = tmp_path / "central/store/control"
        assert socket.is_socket()
        assert socket.stat().st_mode & 0o777 == 0o600
    with central.running():  # a killed gateway leaves its socket behind
        done = check("uplink", "status", "--config", str(central.path))
        assert (done.returncode, done.stdout) == (0, "there are no routes\n")


def test_a_backlog_is_carried_to_another_gateway_and_applied_once(tmp_path: Path, central: Gateway) -> None:
    site = site_of(tmp_path, central)
    file = tmp_path / "stick"
    with site.running():
        for _ in range(3):
            assert publish(site.port, "-t", "public/1") == 0
        done = ask(site, "export", "up", str(file))
        assert (done.exit_code, done.stdout) == (0, f"3 messages are in {file}, and no longer wait for route up\n")
        assert status(site)["backlog_messages"] == 0
        assert ask(site, "export", "up", str(file)).stderr == f"holdfast uplink export: {file}: File exists\n"
    central.path.write_text(central.path.read_text() + '[[route]]\nname = "on"\nbroker = "mqtt://127.0.0.1:1"\n')
    with central.running():
        assert ask(central, "import", str(file)).stdout == f"3 messages of {file} are imported\n"
        assert ask(central, "import", str(file)).stdout == f"{file}: nothing in it is new here\n"
        assert status(central)["backlog_messages"] == 3
        absent = ask(central, "import", str(tmp_path / "absent"))
        assert (absent.exit_code, absent.stderr) == (
            1,
            f"holdfast uplink import: {tmp_path}/absent: No such file or directory\n",
        )
        file.write_bytes(file.read_bytes()[:-1])
        assert "it is not complete" in ask(central, "import", str(file)).stderr
