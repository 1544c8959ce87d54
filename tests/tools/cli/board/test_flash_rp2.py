"""`holdfast flash rp2` on a simulated Pico: its drive takes MicroPython, mpremote copies the files."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from flash_store.log import Log
from tests.support.board_tools import NEEDS_BOARD_TOOLS, mpremote
from tests.support.scripted_broker import scripted_broker
from tests.tools.cli.board.test_flash import gateway, identities
from tools.cli.flash.reader import read_store
from tools.cli.main import make_app
from tools.lab.micropython import MicroPython
from tools.lab.sim.nor import NorFlash
from tools.lab.sim.whole.pico import PicoBoard, make_pico_firmware
from tools.lab.sim.whole.uf2 import RP2350_FAMILY, make_uf2

pytestmark = NEEDS_BOARD_TOOLS
KIB = 1024
FLASH_BYTES, FILES_BYTES, STORE_BYTES = 2048 * KIB, 768 * KIB, 64 * KIB
FIRMWARE = make_pico_firmware(8 * KIB)


class Bench:
    """A Pico on a bench, with files for it."""

    def __init__(self, folder: Path, board: PicoBoard, broker_port: int) -> None:
        self.board, self.config = board, folder / "device.json"
        self.micropython = folder / "micropython.uf2"
        self.micropython.write_bytes(FIRMWARE)
        self.keys: dict[str, Any] = {
            "client_id": "garage-1",
            "topic": "telemetry/garage",
            "network": {"ssid": "attic", "password": "under the roof"},
            "port": {"host": "127.0.0.1", "port": broker_port},
            "flash": {"path": "storage", "sector_count": STORE_BYTES // (4 * KIB)},
            "interval_ms": 100,
            "sensors": [{"kind": "adc", "pin": 26, "full_scale_mv": 3300}],
        }

    def flash(self, *options: str) -> Result:
        self.config.write_text(json.dumps(self.keys))
        words = ["flash", "rp2", "--port", self.board.port, "--config", str(self.config)]
        return CliRunner().invoke(make_app(), [*words, "--drive", str(self.board.drive), *options])

    def store(self) -> bytes:
        return self.board.flash.read(FLASH_BYTES - STORE_BYTES, STORE_BYTES)


@contextmanager
def bench(
    folder: Path, micropython: MicroPython, broker_port: int = 1, files: int | None = FILES_BYTES
) -> Iterator[Bench]:
    with PicoBoard(folder / "board", micropython=micropython, files=files) as board:
        board.wait_for("loader")
        yield Bench(folder, board, broker_port)


def put_store(bench: Bench, messages: int) -> None:
    nor = NorFlash(4 * KIB, STORE_BYTES // (4 * KIB), 256)
    Log.format(nor, 0x1234, 256)
    log = Log(nor)
    for number in range(messages):
        log.append("telemetry/garage", b"message %d" % number)
    bench.board.flash.program(FLASH_BYTES - STORE_BYTES, bytes(nor.image))


def write_program(made: Bench, name: str, text: str) -> None:
    """Has MicroPython on the board, and a file of another program."""
    (made.board.drive / "m.uf2").write_bytes(FIRMWARE)
    made.board.wait_printed(b">>> ")
    mpremote(made.board.port, "exec", f"f = open({name!r}, 'w'); f.write({text!r}); f.close()")


@pytest.mark.timeout(600)  # mpremote copies file by file
def test_board_in_its_loader_sends_its_first_reading_and_a_repeated_command_writes_nothing(
    tmp_path: Path, micropython: MicroPython
) -> None:
    with gateway(tmp_path) as port, bench(tmp_path, micropython, port) as made:
        done = made.flash("--micropython", str(made.micropython))
        assert done.exit_code == 0, done.output
        assert "wrote MicroPython" in done.output
        assert "first reading: " in done.output
        again = made.flash()
        assert again.exit_code == 0, again.output
        assert "the store stays" in again.output
        assert "the board has all of it already" in again.output


async def test_messages_on_the_board_are_rescued_before_they_are_erased(
    tmp_path: Path, micropython: MicroPython
) -> None:
    async with scripted_broker() as broker:
        with bench(tmp_path, micropython) as made:
            put_store(made, 3)
            options = ("--micropython", str(made.micropython), "--rescue", f"mqtt://127.0.0.1:{broker.port}")
            done = await asyncio.to_thread(made.flash, "--no-wait", *options)
            assert done.exit_code == 0, done.output
            assert "rescued 3 messages of garage-1" in done.output
            assert identities(broker)[:3] == [f"00001234/{number}/garage-1" for number in (1, 2, 3)]
            made.board.wait_printed(b"garage-1: boot 1,")
            assert read_store(made.store(), 4 * KIB).epoch != 0x1234


def test_another_users_rights_are_not_lent_to_topics_of_others(tmp_path: Path, micropython: MicroPython) -> None:
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "password").chmod(0o600)
    with bench(tmp_path, micropython) as made:
        made.keys["topic"] = "telemetry/attic"
        put_store(made, 1)
        login = ("--user", "operator", "--password-file", str(tmp_path / "password"))
        options = ("--micropython", str(made.micropython), "--rescue", "mqtt://127.0.0.1:1")
        done = made.flash("--no-wait", *options, *login)
        assert (done.exit_code, "message 1 in the store at" in done.stderr) == (2, True), done.output
        assert "is for the topic telemetry/garage" in done.stderr


def test_file_system_that_fills_the_storage_leaves_no_place_for_a_store(
    tmp_path: Path, micropython: MicroPython
) -> None:
    with bench(tmp_path, micropython, files=None) as made:
        done = made.flash("--micropython", str(made.micropython), "--no-wait")
        assert done.exit_code == 2
        assert (
            "flash.path is storage, and this MicroPython's file system has 848 of the storage's 848 KiB" in done.stderr
        )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is no UF2 file: it begins with nothing"),
        (FIRMWARE[:-512], "is not whole: it has"),
        (FIRMWARE[:-100], "is not whole:"),
        (make_uf2(b"MicroPython" + bytes(600), RP2350_FAMILY), "is for RP2350, and the board at"),
        (make_uf2(b"blink" + bytes(600)), "is a program for RP2040, expected MicroPython"),
    ],
    ids=["empty", "cut between blocks", "cut in a block", "another chip", "another program"],
)
def test_file_that_is_no_micropython_for_this_board_is_refused(
    content: bytes, why: str, tmp_path: Path, micropython: MicroPython
) -> None:
    with bench(tmp_path, micropython) as made:
        made.micropython.write_bytes(content)
        done = made.flash("--micropython", str(made.micropython), "--no-wait")
        assert (done.exit_code, why in done.stderr) == (2, True), done.output
        assert made.board.drive.exists()


def test_another_main_is_replaced_only_when_asked(tmp_path: Path, micropython: MicroPython) -> None:
    with bench(tmp_path, micropython) as made:
        write_program(made, "main.py", "print(1)")
        done = made.flash("--no-wait")
        assert (done.exit_code, "a main.py that is not Holdfast's" in done.stderr) == (2, True), done.output
        done = made.flash("--no-wait", "--replace")
        assert done.exit_code == 0, done.output
        made.board.wait_printed(b"garage-1: boot 1,")


def test_modules_of_an_earlier_firmware_are_removed(tmp_path: Path, micropython: MicroPython) -> None:
    with bench(tmp_path, micropython) as made:
        assert made.flash("--no-wait", "--micropython", str(made.micropython)).exit_code == 0
        made.board.wait_printed(b"garage-1: boot 1,")
        earlier = "import os; os.mkdir('lib/device/clock'); open('lib/device/clock/__init__.py', 'w').write('1/0')"
        mpremote(made.board.port, "exec", earlier + "; open('lib/device/main.py', 'w').write('print(1)')")
        mpremote(made.board.port, "exec", "open('lib/own.py', 'w').write('own = 1')")
        done = made.flash("--no-wait")
        removed = "modules of another firmware are removed: lib/device/clock/__init__.py, lib/device/main.py"
        assert (done.exit_code, removed in done.output) == (0, True), done.output
        made.board.wait_printed(b"garage-1: boot 2,")
        left = mpremote(made.board.port, "exec", "import os; print(os.listdir('lib'), os.listdir('lib/device'))").stdout
        assert "'own.py'" in left and "'main.py'" not in left and "'clock'" not in left


def test_modules_of_an_unknown_program_are_removed_only_when_asked(tmp_path: Path, micropython: MicroPython) -> None:
    with bench(tmp_path, micropython) as made:
        write_program(made, "wire.py", "print(1)")
        done = made.flash("--no-wait")
        assert (done.exit_code, "in place of Holdfast's: wire.py. --replace" in done.stderr) == (2, True), done.output


def test_board_that_prints_without_end_is_interrupted(tmp_path: Path, micropython: MicroPython) -> None:
    with bench(tmp_path, micropython) as made:
        write_program(made, "main.py", "while True:\n    print(1)\n")
        made.board.reset()
        made.board.wait_printed(b"1\r\n1\r\n")
        done = made.flash("--no-wait")
        assert (done.exit_code, "a main.py that is not Holdfast's" in done.stderr) == (2, True), done.output


def test_board_that_resets_while_it_is_asked_is_an_error(tmp_path: Path, micropython: MicroPython) -> None:
    with bench(tmp_path, micropython) as made:
        (made.board.drive / "m.uf2").write_bytes(FIRMWARE)
        made.board.wait_printed(b">>> ")
        made.board.faults.reset_after = 200
        done = made.flash("--no-wait")
        assert done.exit_code == 1, done.output
        assert made.board.port in done.stderr
