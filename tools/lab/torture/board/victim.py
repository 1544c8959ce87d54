"""A simulated board that is flashed, cut at a random place, and flashed again."""

import json
import random
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

from littlefs import LittleFS, LittleFSError

from device.config import load
from flash_store.log import Log
from tools.cli.board.content import board_files, compiled
from tools.cli.board.errors import BoardError, Refused
from tools.cli.board.esp.firmware import read_firmware
from tools.cli.board.esp.steps import Esp32
from tools.cli.board.progress import Progress
from tools.cli.board.settings import Settings
from tools.cli.device.build import Board
from tools.cli.flash.reader import read_store
from tools.cli.flash.store import NoStore
from tools.lab.micropython import MicroPython
from tools.lab.sim.loader.chips import ESP32
from tools.lab.sim.nor import NorFlash
from tools.lab.sim.whole.esp import WholeBoard
from tools.lab.sim.whole.firmware_file import make_firmware

KIB = 1024
SECTOR = 4 * KIB
FILES, STORE = range(0x200000, 0x3F0000), range(0x3F0000, 0x400000)
BAUD = 460_800
EPOCH = 0x600DF00D
MESSAGES_MAX = 6
PROGRAM_BYTES = 8 * KIB
LINE_BYTES, CHIP_BYTES = 330_000, 920_000  # a whole run moves somewhat more, on the line and on the chip
TRIES = 4
READY_S = 30.0


class State(StrEnum):
    """What is on a board before."""

    BLANK = "blank"
    STOCK = "stock"  # MicroPython as downloaded
    OURS = "ours"  # an earlier configuration, whose messages wait
    OLDER = "older"  # the same, and an older MicroPython


class Fault(StrEnum):
    """What ends a run."""

    CABLE = "cable"
    RESET = "reset"
    POWER = "power"  # in an erase or a program


class Victim:
    """One board in a folder of its own.

    Attributes:
        state, fault, place: what was on it, what is cut, and after how many bytes.
        violations: what is wrong with it at the end.
    """

    def __init__(self, folder: Path, micropython: MicroPython, chance: random.Random) -> None:
        self.state = chance.choice(list(State))
        self.fault = chance.choice(list(Fault))
        self.place = chance.randrange(CHIP_BYTES if self.fault is Fault.POWER else LINE_BYTES)
        self.violations: list[str] = []
        self.was_cut = False
        self._messages = chance.randrange(MESSAGES_MAX + 1)
        self._folder = folder
        folder.mkdir()
        self._board = WholeBoard(folder / "board", micropython=micropython, seed=chance.getrandbits(32))
        self._path = folder / "micropython.bin"
        self._config = folder / "device.json"
        self._firmware = make_firmware(ESP32, PROGRAM_BYTES)

    def __str__(self) -> str:
        return f"{self.state} board with {self._messages} messages, {self.fault} after {self.place} bytes"

    def suffer(self) -> None:
        """Flashes, is cut, is flashed again, and looks at what is there."""
        self._prepare()
        with self._board as board:
            self._cut(board)
            with suppress(Refused, BoardError, OSError):
                self._flash(board)
            self.was_cut = self._is_cut(board)
            self._mend(board)
            for attempt in range(TRIES):
                try:
                    self._flash(board)
                    break
                except (Refused, BoardError, OSError) as error:
                    if attempt == TRIES - 1:
                        self.violations.append(f"{self}: repeated {TRIES} times, it ends with {error}")
                        return
            self.damage(board)
            self._judge(board)

    def damage(self, board: WholeBoard) -> None:
        """Called before the board is judged; a test breaks something here."""

    def _flash(self, board: WholeBoard) -> None:
        settings = Settings(board.port, BAUD, self._config, load(str(self._config)), self._path)
        run = Esp32(settings, Progress(is_silent=True))
        run.flash()
        run.start()

    def _prepare(self) -> None:
        """Puts on the flash what was there before, with the store of messages in its place."""
        flash = self._board.flash
        nor = NorFlash(SECTOR, len(STORE) // SECTOR, 16)
        Log.format(nor, EPOCH, 16)
        log = Log(nor)
        for number in range(self._messages):
            log.append("telemetry/garage", b"message %d" % number)
        self._configure(2000)
        if self.state in (State.OURS, State.OLDER):
            self._path.write_bytes(make_firmware(ESP32, PROGRAM_BYTES, seed=1 + (self.state is State.OLDER)))
            with self._board as board:
                self._flash(board)
                board.wait_printed(b"garage-1: boot", READY_S)
            self._board = WholeBoard(self._folder / "board")
            flash = self._board.flash
            flash.erase(STORE.start, len(STORE))
        elif self.state is State.STOCK:
            flash.program(ESP32.bootloader_at, self._firmware)
        flash.program(STORE.start, bytes(nor.image))
        self._path.write_bytes(self._firmware)
        self._configure(60_000)

    def _configure(self, interval_ms: int) -> None:
        keys: dict[str, Any] = {
            "client_id": "garage-1",
            "topic": "telemetry/garage",
            "network": {"ssid": "attic", "password": "under the roof"},
            "port": {"host": "127.0.0.1", "port": 1},
            "flash": {"path": "holdfast", "sector_count": len(STORE) // SECTOR},
            "interval_ms": interval_ms,
            "sensors": [{"kind": "adc", "pin": 34, "full_scale_mv": 3300}],
        }
        self._config.write_text(json.dumps(keys))

    def _cut(self, board: WholeBoard) -> None:
        if self.fault is Fault.POWER:
            board.flash.cut_after = self.place
        elif self.fault is Fault.CABLE:
            board.faults.pull_after = self.place
        else:
            board.faults.reset_after = self.place

    def _is_cut(self, board: WholeBoard) -> bool:
        if self.fault is Fault.POWER:
            return board.flash.cut_after is None
        return (board.faults.pull_after if self.fault is Fault.CABLE else board.faults.reset_after) is None

    def _mend(self, board: WholeBoard) -> None:
        board.flash.cut_after = board.faults.pull_after = board.faults.reset_after = None
        board.plug_cable()

    def _judge(self, board: WholeBoard) -> None:
        try:
            board.wait_printed(b"garage-1: boot", READY_S)
        except TimeoutError as error:
            self.violations.append(f"{self}: the firmware does not start: {error}")
        firmware = read_firmware(self._path)
        wrong = [at for at, content in firmware.pieces() if board.flash.read(at, len(content)) != content]
        wrong_files = self._wrong_files(board.flash.read(FILES.start, len(FILES)))
        if wrong or wrong_files:
            self.violations.append(f"{self}: it has other bytes: {wrong}, {wrong_files}")
        try:
            found = read_store(board.flash.read(STORE.start, len(STORE)), SECTOR)
        except NoStore as error:
            self.violations.append(f"{self}: the store is gone: {error}")
            return
        kept = [found.messages[number].payload for number in range(1, self._messages + 1) if number in found.messages]
        expected = [b"message %d" % number for number in range(self._messages)]
        if found.epoch != EPOCH or kept != expected:
            self.violations.append(f"{self}: {len(kept)} messages are left, in store {found.epoch:08x}")

    def _wrong_files(self, image: bytes) -> list[str]:
        """The files that are not what was meant."""
        files = LittleFS(block_size=SECTOR, block_count=len(image) // SECTOR, prog_size=32, read_size=32, mount=False)
        files.context.buffer[:] = image
        meant = board_files(self._config, load(str(self._config)), compiled(Board.ESP32))
        wrong = []
        try:
            files.mount()
        except LittleFSError as error:
            return [str(error)]
        for name, content in meant.items():
            try:
                with files.open(name, "rb") as file:
                    if file.read() != content:
                        wrong.append(name)
            except (OSError, LittleFSError):
                wrong.append(name)
        return wrong
