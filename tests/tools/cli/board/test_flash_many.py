"""`holdfast flash --from`: the boards of a table by one command, each with its own key."""

import glob
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.support.board_tools import NEEDS_BOARD_TOOLS
from tests.support.command import holdfast
from tests.tools.cli.board.test_flash_site import files_on
from tests.tools.cli.site.at_gateway import SiteGateway
from tools.cli.board.errors import Refused
from tools.cli.board.runs.record import Record
from tools.cli.site.making import make_site
from tools.cli.site.site import Site
from tools.lab.micropython import MicroPython
from tools.lab.sim.loader.chips import ESP32, with_mac
from tools.lab.sim.whole.esp import WholeBoard
from tools.lab.sim.whole.firmware_file import make_firmware

pytestmark = NEEDS_BOARD_TOOLS
PATTERN: dict[str, Any] = {
    "client_id": "%u",
    "topic": "telemetry/%u",
    "network": {"ssid": "attic", "password": "under the roof"},
    "port": {"host": "localhost"},
    "flash": {"path": "holdfast", "sector_count": 16},
    "interval_ms": 60_000,
    "sensors": [{"kind": "adc", "pin": 34, "full_scale_mv": 3300}],
    "status": "status/%u",
}
COUNT = 50
REPEATS = 3
DEADLINE_S = 170


class Hub:
    """Blank boards, a table with one row for each, and a pattern of their configurations."""

    def __init__(self, folder: Path, micropython: MicroPython, count: int) -> None:
        self.folder, self.table = folder, folder / "boards.csv"
        self.names = [f"garage-{number}" for number in range(1, count + 1)]
        self.boards = {name: self.board(name, micropython) for name in self.names}
        (folder / "device.json").write_text(json.dumps(PATTERN))
        (folder / "micropython.bin").write_bytes(make_firmware(ESP32, 8 * 1024))
        self.write({name: self.boards[name].port for name in self.names})

    def board(self, name: str, micropython: MicroPython) -> WholeBoard:
        """The board of a row, which is off."""
        number = int(name.rpartition("-")[2])
        chip = with_mac(ESP32, bytes.fromhex(mac_of(number).replace(":", "")))
        return WholeBoard(self.folder / "boards" / name, chip, micropython=micropython, seed=number)

    def write(self, ports: dict[str, str]) -> None:
        self.table.write_text("name,port\n" + "".join(f"{name},{port}\n" for name, port in ports.items()))

    def flash(self, *options: str) -> Result:
        words = ["--from", str(self.table), "--config", str(self.folder / "device.json")]
        words += ["--site", str(self.folder / "site"), "--micropython", str(self.folder / "micropython.bin")]
        return holdfast("flash", "esp32", *words, *options)

    @contextmanager
    def plugged(self) -> Iterator[None]:
        with ExitStack() as stack:
            for board in self.boards.values():
                stack.enter_context(board)
            yield

    def check(self, site: Site) -> None:
        """Each board has its own name, key and certificate, and no two have the same; read from their flash."""
        keys = set()
        for number, (name, board) in enumerate(self.boards.items(), 1):
            given = site.find(name)
            assert given is not None and given.line.board == mac_of(number)
            on_board = files_on(board)
            assert given.board_files().items() <= on_board.items()
            assert json.loads(on_board["device.json"])["client_id"] == name
            keys.add(on_board["key.der"])
        assert len(keys) == len(self.boards)


def mac_of(number: int) -> str:
    return f"24:6f:28:00:{number >> 8:02x}:{number & 255:02x}"


def hub(folder: Path, micropython: MicroPython, count: int) -> Hub:
    make_site(folder / "site", "hill")
    return Hub(folder, micropython, count)


def test_a_fault_of_one_board_does_not_stop_the_others_and_the_run_is_repeated(
    tmp_path: Path, micropython: MicroPython
) -> None:
    made = hub(tmp_path, micropython, 3)
    with made.plugged():
        made.boards["garage-2"].faults.pull_after = 50_000
        done = made.flash("--no-wait")
        assert done.exit_code == 1, done.output
        assert "2 of 3 boards are ready" in done.stdout
        assert "repeat the command for garage-2" in done.stderr
        made.boards["garage-2"].plug_cable()
        done = made.flash("--no-wait")
        assert done.exit_code == 0, done.output
        assert "3 of 3 boards are ready" in done.stdout
        assert done.stdout.count("the board has all of it already") == 2
        made.check(Site.open(tmp_path / "site"))


def test_boards_that_have_changed_places_are_refused(tmp_path: Path, micropython: MicroPython) -> None:
    made = hub(tmp_path, micropython, 2)
    with made.plugged():
        assert made.flash("--no-wait").exit_code == 0
        first, second = made.names
        made.write({first: made.boards[second].port, second: made.boards[first].port})
        done = made.flash("--no-wait")
        assert done.exit_code == 1
        assert f"{first}: this board, {mac_of(2)}, is {second}: {made.table}.boards says so" in done.stderr
        Path(f"{made.table}.boards").unlink()  # the ledger knows it too
        done = made.flash("--no-wait")
        assert (done.exit_code, f"has what '{second}' was given" in done.stderr) == (1, True), done.output
        made.check(Site.open(tmp_path / "site"))


@contextmanager
def plugging(monkeypatch: pytest.MonkeyPatch, ports: str, *boards: WholeBoard) -> Iterator[None]:
    """Plugs boards in one after the other, as soon as the command has looked for the first time what is there."""
    has_looked, is_over = threading.Event(), threading.Event()
    look = glob.glob

    def noting(pattern: str, **options: Any) -> list[str]:
        found = look(pattern, **options)
        if pattern == ports:
            has_looked.set()
        return found

    def plug() -> None:
        has_looked.wait(DEADLINE_S)
        with ExitStack() as stack:
            for board in boards:
                stack.enter_context(board)
            is_over.wait(DEADLINE_S)

    with monkeypatch.context() as patch:
        patch.setattr(glob, "glob", noting)
        hand = threading.Thread(target=plug)
        hand.start()
        try:
            yield
        finally:
            has_looked.set()
            is_over.set()
            hand.join()


def test_boards_without_a_port_are_taken_as_they_are_plugged_in(
    tmp_path: Path, micropython: MicroPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = hub(tmp_path, micropython, 2)
    ports = str(tmp_path / "boards" / "*" / "port")
    made.write({"garage-1": ""})
    with plugging(monkeypatch, ports, made.boards["garage-1"]):
        done = made.flash("--no-wait", "--ports", ports)
    assert done.exit_code == 0, done.output
    assert "garage-1: plug in its board" in done.stdout
    made.write(dict.fromkeys(made.names, ""))
    made.boards["garage-1"] = made.board("garage-1", micropython)
    with plugging(monkeypatch, ports, *made.boards.values()):
        done = made.flash("--no-wait", "--ports", ports)
        assert done.exit_code == 0, done.output
        made.check(Site.open(tmp_path / "site"))
    assert "garage-1: ready since an earlier run" in done.stdout
    assert "is garage-1, which is ready; plug in that of garage-2" in done.stdout


def test_bad_rows_are_named_with_file_and_line_before_anything_is_given_or_written(
    tmp_path: Path, micropython: MicroPython
) -> None:
    made = hub(tmp_path, micropython, 1)
    folder = tmp_path / "devices"
    for name, client_id in (("garage-1", "garage-1"), ("attic", "cellar")):
        (folder / name).mkdir(parents=True)
        (folder / name / "device.json").write_text(json.dumps(PATTERN | {"client_id": client_id, "colour": 1}))
    made.table.write_text("name,port\ngarage-1,/dev/a\nattic,/dev/b\nshed,/dev/c\n")
    done = made.flash("--config", str(folder))
    assert done.exit_code == 2
    told = done.stderr.splitlines()
    assert [line.split(": ")[1] for line in told] == [f"{made.table}:{line}" for line in (3, 4)]
    assert 'client_id is "cellar", expected "attic"' in told[0] and "No such file" in told[1]
    made.table.write_text("name,port\ngarage-1,/dev/a\n")
    done = made.flash("--config", str(folder))
    assert f"{made.table}:2: {folder}/garage-1/device.json: colour is no key" in done.stderr
    assert Site.open(tmp_path / "site").lines() == {}
    assert not Path(f"{made.table}.boards").exists()


def test_a_pattern_needs_the_place_of_the_name(tmp_path: Path, micropython: MicroPython) -> None:
    made = hub(tmp_path, micropython, 1)
    (tmp_path / "device.json").write_text(json.dumps(PATTERN | {"client_id": "garage"}))
    assert 'client_id is "garage", expected "%u"' in made.flash().stderr


def test_two_boards_with_one_key_are_refused(tmp_path: Path, micropython: MicroPython) -> None:
    made = hub(tmp_path, micropython, 2)
    port = {"kind": "tls", "host": "localhost", "ca": "ca.pem", "certificate": "own.pem", "key": "key.pem"}
    (tmp_path / "device.json").write_text(json.dumps(PATTERN | {"port": port}))
    words = ["flash", "esp32", "--no-wait", "--from", str(made.table), "--config", str(tmp_path / "device.json")]
    done = holdfast(*words)
    assert (done.exit_code, f"{made.table}:2: " in done.stderr, "ca.pem cannot be read" in done.stderr) == (
        2,
        True,
        True,
    )
    for name in ("ca.pem", "own.pem", "key.pem"):
        (tmp_path / name).write_text(name)
    done = holdfast(*words)
    assert done.exit_code == 2
    assert f"{made.table}:3: {tmp_path / 'key.pem'} is the key of garage-1 too, expected a key for each" in done.stderr
    assert not Path(f"{made.table}.boards").exists()


def test_a_port_or_a_table_is_needed_and_an_rp2_needs_its_port(tmp_path: Path) -> None:
    table = tmp_path / "boards.csv"
    table.write_text("name\na\n")
    for words in ((), ("--port", "/dev/a", "--from", str(table))):
        done = holdfast("flash", "rp2", *words)
        assert (done.exit_code, "expected --port, or --from" in done.stderr) == (2, True)
    done = holdfast("flash", "rp2", "--from", str(table))
    assert (done.exit_code, f"{table}:2: port is missing" in done.stderr) == (2, True)


def test_a_record_is_read_again_and_a_bad_line_is_named(tmp_path: Path) -> None:
    table = tmp_path / "boards.csv"
    record = Record(table)
    record.claim("a", "1")
    record.claim("a", "1")
    record.finish("a")
    record.claim("b", "2")
    again = Record(table)
    assert (again.is_ready("a"), again.is_ready("b"), again.name_of("2")) == (True, False, "b")
    for name, number in (("a", "2"), ("c", "1"), ("a", "3")):
        with pytest.raises(Refused):
            again.claim(name, number)
    record.path.write_text("a,1,ready\nb\n")
    with pytest.raises(Refused, match=f"{record.path}:2: expected NAME,NUMBER,begun"):
        Record(table)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_fifty_boards_by_one_command_have_fifty_keys(tmp_path: Path, micropython: MicroPython) -> None:
    """Three of them have a fault in the first run; the command that is repeated makes all of them ready."""
    gateway = SiteGateway(tmp_path)
    made = Hub(tmp_path, micropython, COUNT)
    pattern = PATTERN | {"port": {"host": "localhost", "port": gateway.port}}
    (tmp_path / "device.json").write_text(json.dumps(pattern))
    options = ("--reload", "kill -HUP {}", "--at-once", "4", "--wait-s", "120")
    faulty = {"garage-7": 30_000, "garage-20": 120_000, "garage-41": 5_000}
    with gateway.serving(), made.plugged():
        words = [one.format(gateway.pid) for one in options]
        for name, place in faulty.items():
            made.boards[name].faults.pull_after = place
        done = made.flash(*words)
        assert done.exit_code == 1, done.output
        failed = done.stderr.splitlines()[-1].partition("repeat the command for ")[2].split(", ")
        assert set(faulty) <= set(failed)
        assert f"{COUNT - len(failed)} of {COUNT} boards are ready" in done.stdout
        assert done.stdout.count("first reading: [") == COUNT - len(failed)
        for name in faulty:
            made.boards[name].plug_cable()
        for _ in range(REPEATS):  # on a computer that is busy, more boards may have been too slow
            done = made.flash(*words)
            if not done.exit_code:
                break
        assert done.exit_code == 0, done.output
        assert f"{COUNT} of {COUNT} boards are ready" in done.stdout
        made.check(gateway.site)
