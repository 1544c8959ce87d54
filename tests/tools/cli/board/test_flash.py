"""`holdfast flash` on simulated boards: the makers' real tools write, and a real MicroPython runs what was written."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import serial
from typer.testing import CliRunner, Result

from flash_store.log import Log
from tests.support.board_tools import NEEDS_BOARD_TOOLS, mpremote
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from tools.cli.flash.reader import read_store
from tools.cli.main import make_app
from tools.lab.micropython import MicroPython
from tools.lab.sim.loader.chips import ESP32, ESP32S3
from tools.lab.sim.nor import NorFlash
from tools.lab.sim.whole.esp import WholeBoard
from tools.lab.sim.whole.firmware_file import TABLE, make_firmware
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process, holdfast
from wire.identity import IDENTITY_PROPERTY, find_user_property

pytestmark = NEEDS_BOARD_TOOLS
KIB = 1024
STORE = range(0x3F0000, 0x400000)
ORIGIN = "garage-1"


class Bench:
    """A board on a bench, with files for it."""

    def __init__(self, folder: Path, board: WholeBoard, broker_port: int) -> None:
        self.folder, self.board = folder, board
        self.config = folder / "device.json"
        self.keys: dict[str, Any] = {
            "client_id": ORIGIN,
            "topic": "telemetry/garage",
            "network": {"ssid": "attic", "password": "under the roof"},
            "port": {"host": "127.0.0.1", "port": broker_port},
            "flash": {"path": "holdfast", "sector_count": len(STORE) // (4 * KIB)},
            "interval_ms": 100,
            "sensors": [{"kind": "adc", "pin": 34, "full_scale_mv": 3300}],
        }
        self.micropython = folder / "micropython.bin"
        self.micropython.write_bytes(make_firmware(ESP32, 8 * KIB))

    def flash(self, *options: str) -> Result:
        """Runs the command in this process, while the board lives in its thread."""
        self.config.write_text(json.dumps(self.keys))
        words = ["flash", "esp32", "--port", self.board.port, "--config", str(self.config)]
        return CliRunner().invoke(make_app(), [*words, *options])

    def write(self, *options: str) -> Result:
        return self.flash("--micropython", str(self.micropython), *options)

    def store(self) -> bytes:
        return self.board.flash.read(STORE.start, len(STORE))


@contextmanager
def bench(folder: Path, micropython: MicroPython, broker_port: int = 1, **board: Any) -> Iterator[Bench]:
    with WholeBoard(folder / "board", micropython=micropython, **board) as made:
        yield Bench(folder, made, broker_port)


def put_store(
    bench: Bench, messages: int, at: int = STORE.start, origin: str = ORIGIN, topic: str = "telemetry/garage"
) -> None:
    """Puts a store on the board's flash, with messages that no broker has acknowledged."""
    nor = NorFlash(4 * KIB, len(STORE) // (4 * KIB), 16)
    Log.format(nor, 0x1234, 16)
    log = Log(nor)
    log.settings.set("client_id", origin.encode())
    for number in range(messages):
        log.append(topic, b'[{"bn":"garage-1:","v":%d}]' % number, 1 + number % 2, retain=number == 0)
    bench.board.flash.program(at, bytes(nor.image))


def identities(broker: ScriptedBroker) -> list[str | None]:
    return [
        find_user_property(message.properties, IDENTITY_PROPERTY)
        for connection in broker.publishes
        for message in connection
    ]


@contextmanager
def gateway(folder: Path) -> Iterator[int]:
    """A gateway that takes every client; gives its port."""
    port = free_port()
    listener = f'[[listener]]\nkind = "tcp"\nhost = "127.0.0.1"\nport = {port}\n'
    (folder / "gateway.toml").write_text(f'name = "desk"\n[store]\npath = "gateway-store"\nvolatile = true\n{listener}')
    words = holdfast("gateway", "run", "--config", "gateway.toml")
    process = Process("gateway", ["env", "-C", str(folder), *words], ready=port)
    process.start()
    try:
        process.wait_ready()
        yield port
    finally:
        process.stop()


def test_blank_board_sends_its_first_reading_and_a_repeated_command_writes_nothing(
    tmp_path: Path, micropython: MicroPython
) -> None:
    with gateway(tmp_path) as port, bench(tmp_path, micropython, port) as made:
        first = made.write()
        assert first.exit_code == 0, first.output
        assert "ESP32, 4 MiB of flash, nothing on it" in first.output
        assert re.search(r'first reading: \[{"bn":"garage-1:",.*"boot":1,', first.output)
        before = made.board.flash.read(0, STORE.start)
        again = made.write()
        assert again.exit_code == 0, again.output
        assert "the store stays" in again.output
        assert "the board has all of it already" in again.output
        assert made.board.flash.read(0, STORE.start) == before


def test_new_configuration_for_a_board_leaves_its_messages(tmp_path: Path, micropython: MicroPython) -> None:
    with bench(tmp_path, micropython) as made:
        put_store(made, 3)
        done = made.write("--no-wait")
        assert done.exit_code == 0, done.output
        assert "the store stays: 3 messages without an acknowledgement" in done.output
        made.keys["interval_ms"] = 60_000
        done = made.flash("--no-wait")
        assert done.exit_code == 0, done.output
        made.board.wait_printed(b"garage-1: boot")
        assert set(read_store(made.store(), 4 * KIB).messages) >= {1, 2, 3}
        assert b"wrote MicroPython" not in done.output.encode()


def test_store_at_another_place_is_refused_and_nothing_is_written(tmp_path: Path, micropython: MicroPython) -> None:
    with bench(tmp_path, micropython) as made:
        assert made.write("--no-wait").exit_code == 0
        made.board.wait_printed(b"no broker at")
        made.keys["flash"]["sector_count"] = 32
        before = made.board.flash.read(0, STORE.start)
        done = made.write("--no-wait")
        assert done.exit_code == 2
        assert "the store at 0x3f0000 holds" in done.stderr
        assert "--rescue URL sends them first; --discard gives them up" in done.stderr
        assert made.board.flash.read(0, STORE.start) == before
        done = made.write("--no-wait", "--discard")
        assert done.exit_code == 0, done.output
        assert "at 0x3f0000: discarded" in done.output


async def test_messages_are_rescued_under_their_identity_before_they_are_erased(
    tmp_path: Path, micropython: MicroPython
) -> None:
    async with scripted_broker() as broker:
        with bench(tmp_path, micropython) as made:
            put_store(made, 5)
            url = f"mqtt://127.0.0.1:{broker.port}"
            done = await asyncio.to_thread(made.write, "--no-wait", "--rescue", url)
            assert done.exit_code == 0, done.output
            assert f"rescued 5 messages of garage-1 to {url}" in done.output
            assert identities(broker)[:5] == [f"00001234/{number}/garage-1" for number in range(1, 6)]
            first = broker.publishes[0][0]
            assert (first.topic, bytes(first.payload), first.retain) == (
                "telemetry/garage",
                b'[{"bn":"garage-1:","v":0}]',
                True,
            )
            assert (broker.connects[0].client_id, broker.connects[0].clean_start) == (ORIGIN, False)
            made.board.wait_printed(b"garage-1: boot 1, epoch")
            assert read_store(made.store(), 4 * KIB).epoch != 0x1234


@pytest.mark.parametrize(
    ("origin", "topic", "why"),
    [
        (ORIGIN, "telemetry/garage/answer", ""),
        (ORIGIN, "status/garage-1", ""),
        (ORIGIN, "commands/lock", "is for the topic commands/lock, to which garage-1 does not publish"),
        (ORIGIN, "telemetry/garages", "is for the topic telemetry/garages, to which"),
        ("garage-2", "telemetry/garage", "has messages of garage-2, and"),
    ],
)
async def test_another_users_rights_are_lent_to_the_boards_own_messages_alone(
    origin: str, topic: str, why: str, tmp_path: Path, micropython: MicroPython
) -> None:
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "password").chmod(0o600)
    async with scripted_broker() as broker:
        with bench(tmp_path, micropython) as made:
            made.keys["status"] = "status/garage-1"
            put_store(made, 2, origin=origin, topic=topic)
            before = made.board.flash.read(0, 4 * 1024 * KIB)
            login = ("--user", "operator", "--password-file", str(tmp_path / "password"))
            url = f"mqtt://127.0.0.1:{broker.port}"
            done = await asyncio.to_thread(made.write, "--no-wait", "--rescue", url, *login)
            if why:
                assert (done.exit_code, why in done.stderr) == (2, True), done.output
                assert "operator" in done.stderr
                assert broker.connects == []
                assert made.board.flash.read(0, 4 * 1024 * KIB) == before
            else:
                assert done.exit_code == 0, done.output
                assert identities(broker)[:2] == [f"00001234/{number}/garage-1" for number in (1, 2)]
                assert broker.connects[0].username == "operator"


async def test_messages_that_the_broker_does_not_acknowledge_stay(tmp_path: Path, micropython: MicroPython) -> None:
    async with scripted_broker(puback=lambda message: 0x87 if message.payload.endswith(b"3}]") else 0) as broker:
        with bench(tmp_path, micropython) as made:
            put_store(made, 5)
            before = made.board.flash.read(0, 4 * 1024 * KIB)
            url = f"mqtt://127.0.0.1:{broker.port}"
            done = await asyncio.to_thread(made.write, "--no-wait", "--rescue", url)
            assert done.exit_code == 1
            assert "of 5 messages of garage-1, and then: the server refuses a message: not authorized" in done.stderr
            assert made.board.flash.read(0, 4 * 1024 * KIB) == before


def test_files_that_are_no_firmware_for_this_board_are_refused(tmp_path: Path, micropython: MicroPython) -> None:
    good = make_firmware(ESP32, 8 * KIB)
    files = {
        b"": "is no firmware of an ESP32: it begins with nothing",
        b"UF2\n" + bytes(508): "is a UF2 file, for an RP2",
        b"<html>404</html>": "is no firmware of an ESP32: it begins with 3c 68 74 6d",
        good[:-100]: "at 0xf000: the image is not whole; was the download cut?",
        good[:-2000] + b"?" + good[-1999:]: "at 0xf000: the image's checksum is wrong",
        make_firmware(ESP32S3, 8 * KIB): "is for ESP32-S3, and no such board can have this configuration",
        make_firmware(ESP32, 8 * KIB, project="blink"): "is the program 'blink', expected MicroPython",
        make_firmware(ESP32, 8 * KIB, flash_size=8 * 1024 * KIB): "is for a flash of 8 MiB, and the board's has 4 MiB",
        make_firmware(ESP32, 8 * KIB, TABLE.replace("vfs, ", "data,")): "the table's partitions end at 0x400000",
    }
    with bench(tmp_path, micropython) as made:
        before = made.board.flash.read(0, 4 * 1024 * KIB)
        for content, why in files.items():
            made.micropython.write_bytes(content)
            done = made.write("--no-wait")
            assert (done.exit_code, why in done.stderr) == (2, True), done.output
        assert made.board.flash.read(0, 4 * 1024 * KIB) == before


def test_another_program_that_prints_without_end_is_replaced_only_when_asked(
    tmp_path: Path, micropython: MicroPython
) -> None:
    with bench(tmp_path, micropython) as made:
        made.board.flash.program(ESP32.bootloader_at, make_firmware(ESP32, KIB, project="blink"))
        made.board.reset()
        made.board.wait_printed(b"blink: still here")
        before = made.board.flash.read(0, 4 * 1024 * KIB)
        done = made.write("--no-wait")
        assert done.exit_code == 2
        assert "the board has another program, 'blink'" in done.stderr
        assert made.board.flash.read(0, 4 * 1024 * KIB) == before
        done = made.write("--no-wait", "--replace")
        assert done.exit_code == 0, done.output
        made.board.wait_printed(b"garage-1: boot 1")


def test_board_whose_main_py_prints_without_end_is_interrupted_and_gets_its_own_again(
    tmp_path: Path, micropython: MicroPython
) -> None:
    with bench(tmp_path, micropython) as made:
        made.keys["interval_ms"] = 60_000  # so that it makes one reading
        assert made.write("--no-wait").exit_code == 0
        made.board.wait_printed(b"no broker at")
        text = "while True:\n    print(1)\n"
        mpremote(made.board.port, "exec", f"f = open('main.py', 'w'); f.write({text!r}); f.close()")
        made.board.reset()
        made.board.wait_printed(b"1\r\n1\r\n")
        done = made.flash("--no-wait")
        assert (done.exit_code, "the store stays: 1 message without" in done.output) == (0, True), done.output
        made.board.wait_printed(b"garage-1: boot 2")


def test_port_that_cannot_be_used_is_named(tmp_path: Path, micropython: MicroPython) -> None:
    with bench(tmp_path, micropython) as made:
        made.board.pull_cable()
        done = made.write("--no-wait")
        assert (done.exit_code, "there is no such port; is the board plugged in?" in done.stderr) == (2, True)
        assert made.board.port in done.stderr
        made.board.plug_cable()
        with serial.Serial(made.board.port, exclusive=True):
            done = made.write("--no-wait")
        assert (done.exit_code, "another program uses this port" in done.stderr) == (2, True), done.stderr


def test_gateway_that_cannot_be_reached_is_told_before_anything_is_written(
    tmp_path: Path, micropython: MicroPython
) -> None:
    with bench(tmp_path, micropython, free_port()) as made:
        done = made.write()
        assert done.exit_code == 2
        assert "the first reading cannot be awaited at mqtt://127.0.0.1:" in done.stderr
        assert made.board.starts == 1


@pytest.mark.parametrize("fault", ["pull_after", "reset_after"])
def test_run_that_is_cut_is_repeated_and_ends_well(fault: str, tmp_path: Path, micropython: MicroPython) -> None:
    with bench(tmp_path, micropython) as made:
        put_store(made, 4)
        for place in (2_000, 20_000, 60_000, 150_000):
            setattr(made.board.faults, fault, place)
            done = made.write("--no-wait")
            assert done.exit_code in (0, 1, 2), done.output
            assert done.exception is None or isinstance(done.exception, SystemExit)
            setattr(made.board.faults, fault, None)
            made.board.plug_cable()
        done = made.write("--no-wait")
        assert done.exit_code == 0, done.output
        made.board.wait_printed(b"garage-1: boot")
        assert set(read_store(made.store(), 4 * KIB).messages) >= {1, 2, 3, 4}
