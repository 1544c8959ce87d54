"""The steps for an RP2: MicroPython by its drive, then files by the console."""

import hashlib
import re
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from zlib import crc32

from device.config import Config
from tools.cli.board.console import Answer, Console
from tools.cli.board.content import CONFIG, MARK, board_files, compiled, stale_files
from tools.cli.board.errors import BoardError, Refused
from tools.cli.board.forms import check_fits
from tools.cli.board.process import run
from tools.cli.board.progress import Progress
from tools.cli.board.rescue import check_lent, name_note, rescue_region
from tools.cli.board.rp2.uf2 import Uf2, copy_to_drive, find_drive, read_uf2
from tools.cli.board.settings import Settings
from tools.cli.board.stores import BLANK, SECTOR_BYTES, Region, look_into
from tools.cli.device.build import Board
from tools.cli.device.check_config import Board as Kind
from tools.cli.device.check_config import refusals, warnings

STORAGE = "storage"
READ_TRIES = 5
SECTOR_LINE = re.compile(r"^holdfast: (\d+) (\d+) ((?:[0-9a-f]{2})*)\s*$", re.MULTILINE)
LAST = ("main.py", MARK)  # before these are there, the board starts nothing
PORT_S, LOOK_AGAIN_S = 30.0, 0.1
PICOTOOL_S = 120.0
NUMBER = """
import binascii, json, machine
print("holdfast:" + json.dumps(str(binascii.hexlify(machine.unique_id()), "ascii")))
"""
HASHES = """
import hashlib, json, os, binascii
r = {}
def look(folder):
    for name, kind, *_ in os.ilistdir(folder or "/"):
        path = folder + "/" + name if folder else name
        if kind & 0x4000:
            look(path)
        else:
            h = hashlib.sha256()
            b = bytearray(512)
            with open(path, "rb") as file:
                while True:
                    n = file.readinto(b)
                    if not n:
                        break
                    h.update(memoryview(b)[:n])
            r[path] = str(binascii.hexlify(h.digest()), "ascii")
look("")
print("holdfast:" + json.dumps(r))
"""
READ = """
import binascii, rp2
f = rp2.Flash()
b = bytearray(4096)
for n in {sectors}:
    f.readblocks(n, b, 0)
    h = str(binascii.hexlify(b), "ascii") if any(x != 255 for x in b) else ""
    print("holdfast:", n, binascii.crc32(b), h)
"""
ERASE = """
import rp2
f = rp2.Flash()
for n in range({first}, {last}):
    f.ioctl(6, n)
print("holdfast:1")
"""
STOP = """
import os
for name in ("main.py", "holdfast.json"):
    try:
        os.remove(name)
    except OSError:
        pass
print("holdfast:1")
"""
REMOVE = """
import os
for name in {names}:
    os.remove(name)
    while "/" in name:
        name = name.rsplit("/", 1)[0]
        try:
            os.rmdir(name)
        except OSError:
            break
print("holdfast:1")
"""


class Rp2:
    """Flashes one board. Its methods raise Refused and BoardError."""

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._settings, self._progress = settings, progress
        self._console = Console(settings.port)

    def flash(self) -> None:
        """Writes what is missing."""
        settings, progress = self._settings, self._progress
        check_keys(settings.config, settings.keys)
        for text in warnings(settings.keys, Kind.RP2):
            progress.say(f"warning: {text}")
        firmware = None if settings.micropython is None else read_uf2(settings.micropython)
        answer = self._micropython(firmware)
        self._check(answer)
        progress.say(check_fits(answer, settings.keys))
        settings.claim(self._console.value(NUMBER))
        region = self._look(answer)
        if region is not None:
            self._keep_messages(region, answer)
        files = board_files(settings.config, settings.keys, compiled(Board.RP2, progress), settings.given)
        with progress.step("looked at the board's files"):
            there = self._console.value(HASHES)
        missing = {name: content for name, content in files.items() if there.get(name) != _hash(content)}
        stale = stale_files(there, files)
        if stale and not self._may_replace(answer):
            raise Refused(
                f"the board has modules that it would load in place of Holdfast's: {', '.join(stale)}. --replace "
                "removes them"
            )
        if not missing and not stale:
            progress.say("the board has all of it already")
            return
        size = sum(len(content) for content in missing.values())
        if stale:
            progress.say(f"modules of another firmware are removed: {', '.join(stale)}")
        with progress.step(f"wrote {len(missing)} files, {size // 1024} KiB"):
            self._stop()
            self._remove(stale)
            self._copy(
                {name: content for name, content in files.items() if name in missing or name in ("main.py", MARK)}
            )
        with progress.step("read everything back"):
            there = self._console.value(HASHES)
        if wrong := [name for name, content in files.items() if there.get(name) != _hash(content)]:
            raise BoardError(f"{settings.port}: {', '.join(wrong)} read back differently; repeat the command")

    def start(self) -> None:
        """Starts the board's firmware."""
        self._console.run("reset")

    def _micropython(self, firmware: Uf2 | None) -> Answer:
        """Has MicroPython on the board, and asks it."""
        settings, progress = self._settings, self._progress
        drive = settings.drive if settings.drive is not None and settings.drive.exists() else find_drive()
        answer = None
        if Path(settings.port).exists() or "://" in settings.port:
            with progress.step("asked the board"):
                answer = self._console.ask()
            progress.say(_describe(answer))
            if answer.platform != "rp2":
                raise Refused(f"{settings.port}: the board calls itself {answer.platform}, expected rp2")
            if firmware is None or firmware.version == ".".join(map(str, answer.version)):
                return answer
            if firmware.chip not in answer.machine:
                raise Refused(f"{firmware.path} is for {firmware.chip}, and the board is a {answer.machine}")
            self._console.run("bootloader")
            drive = self._await_drive()
        elif firmware is None:
            raise Refused(
                f"{settings.port}: there is no such port, and no MicroPython is given for a board in its loader"
            )
        assert firmware is not None
        with progress.step(f"wrote MicroPython {firmware.version or 'of the file'}"):
            if drive is not None:
                copy_to_drive(firmware, drive)
            else:
                self._picotool(firmware)
            self._await_port()
        with progress.step("asked the board"):
            answer = self._console.ask()
        progress.say(_describe(answer))
        return answer

    def _await_drive(self) -> Path | None:
        end_s = time.monotonic() + PORT_S
        while time.monotonic() < end_s:
            given = self._settings.drive
            if given is not None and given.exists():
                return given
            if given is None and ((found := find_drive()) or shutil.which("picotool")):
                return found
            time.sleep(LOOK_AGAIN_S)
        raise BoardError("the board's drive has not appeared; mount it, and name its folder with --drive")

    def _picotool(self, firmware: Uf2) -> None:
        program = shutil.which("picotool")
        if program is None:
            raise Refused(
                "no drive of an RP2 is mounted, and there is no picotool: hold BOOTSEL while you plug the board in, "
                "and name the drive's folder with --drive"
            )
        run(["load", "-v", "-x", str(firmware.path)], self._settings.port, PICOTOOL_S, program=[program])

    def _await_port(self) -> None:
        end_s = time.monotonic() + PORT_S
        while not Path(self._settings.port).exists() and "://" not in self._settings.port:
            if time.monotonic() > end_s:
                raise BoardError(f"{self._settings.port}: the port has not appeared within {PORT_S:g} s")
            time.sleep(LOOK_AGAIN_S)

    def _check(self, answer: Answer) -> None:
        if "main.py" in answer.names and not self._may_replace(answer):
            raise Refused("the board has a main.py that is not Holdfast's. --replace replaces it")

    def _may_replace(self, answer: Answer) -> bool:
        return self._settings.replaces or MARK in answer.names or CONFIG in answer.names

    def _look(self, answer: Answer) -> Region | None:
        """The store's region at the end of the storage area; None for a store on a chip of its own."""
        keys = self._settings.keys
        if keys.flash_path != STORAGE:
            return None
        size = keys.sector_count * SECTOR_BYTES
        start = answer.storage - size
        if start < answer.files:
            raise Refused(
                f"flash.path is {STORAGE}, and this MicroPython's file system has {answer.files // 1024} of the "
                f"storage's {answer.storage // 1024} KiB: a store of {size // 1024} KiB behind it needs a MicroPython "
                "of your own (docs/how-to/board-flash.md); or give the board a chip, with flash.path spi:BUS:CS"
            )
        with self._progress.step("looked for what must not be lost"):
            content = self._read(range(start // SECTOR_BYTES, answer.storage // SECTOR_BYTES))
        return look_into(content, start, is_named=True)

    def _read(self, sectors: range) -> bytes:
        """Reads sectors of the storage. What is lost or changed on the line is asked for again."""
        found: dict[int, bytes] = {}
        for _ in range(READ_TRIES):
            missing = [number for number in sectors if number not in found]
            if not missing:
                break
            output = self._console.run("exec", READ.format(sectors=missing))
            for number, crc, digits in SECTOR_LINE.findall(output):
                content = bytes.fromhex(digits) if digits else BLANK * SECTOR_BYTES
                if crc32(content) == int(crc) and len(content) == SECTOR_BYTES:
                    found[int(number)] = content
        if len(found) != len(sectors):
            raise BoardError(f"{self._settings.port}: {len(found)} of {len(sectors)} sectors of the store were read")
        return b"".join(found[number] for number in sectors)

    def _keep_messages(self, region: Region, answer: Answer) -> None:
        settings, progress = self._settings, self._progress
        if region.store is None and not region.fault:
            return
        if region.store is None and not settings.discards:
            raise Refused(
                f"the store's place at {region.place} of the storage has no store that can be read: {region.fault}. "
                "--discard erases it"
            )
        if not (settings.discards or settings.rescue):
            progress.say(f"the store stays: {region.unacknowledged} messages without an acknowledgement")
            progress.say(name_note(region, settings.keys.client_id))
            return
        check_lent(region, settings)
        self._stop()
        region = self._look(answer) or region  # the firmware may have made more messages
        if settings.rescue is not None:
            try:
                rescue_region(region, settings, progress)
            except Refused as error:  # the firmware is stopped already
                raise BoardError(str(error)) from error
        elif region.unacknowledged:
            progress.say(f"{region.unacknowledged} messages without an acknowledgement: discarded")
        with progress.step(f"erased the store, {region.size // 1024} KiB"):
            first, last = region.area.start // SECTOR_BYTES, region.area.stop // SECTOR_BYTES
            self._console.value(ERASE.format(first=first, last=last))

    def _stop(self) -> None:
        """Ends the firmware for good: a watchdog that it has started would reset the board in the middle."""
        self._console.value(STOP)
        self._console.run("reset")
        self._await_port()

    def _remove(self, names: Sequence[str]) -> None:
        """Removes files of the board."""
        if names:
            self._console.value(REMOVE.format(names=list(names)))

    def _copy(self, files: Mapping[str, bytes]) -> None:
        """Copies files, `main.py` and the mark last: before, the board starts nothing."""
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            last = [name for name in LAST if name in files]
            tops = sorted({name.partition("/")[0] for name in files} - set(last))
            if tops:
                self._console.run("fs", "cp", "-r", *(str(Path(folder, top)) for top in tops), ":")
            for name in last:
                self._console.run("fs", "cp", str(Path(folder, name)), f":{name}")


def check_keys(config: Path, keys: Config) -> None:
    """Raises Refused for a configuration that no RP2 can run."""
    if wrong := refusals(keys, Kind.RP2):
        raise Refused("\n".join(f"{config}: {text}" for text in wrong))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _describe(answer: Answer) -> str:
    version = ".".join(map(str, answer.version))
    return f"{answer.machine}: MicroPython {version}, {answer.heap // 1024} KiB of heap"
