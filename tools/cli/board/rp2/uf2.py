"""MicroPython's UF2 file for an RP2 (github.com/microsoft/uf2), and the drive that takes it."""

import os
import re
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tools.cli.board.errors import BoardError, Refused

BLOCK_BYTES = 512
HEADER = struct.Struct("<8I")
FIRST_MAGIC, SECOND_MAGIC, LAST_MAGIC = 0x0A32_4655, 0x9E5D_5157, 0x0AB1_6F30
NOT_FOR_FLASH = 0x1
ABSOLUTE_FAMILY = 0xE48B_FF57  # of a block that works around an erratum of the RP2350; it is for no program
FAMILIES = {0xE48B_FF56: "RP2040", 0xE48B_FF59: "RP2350", 0xE48B_FF5B: "RP2350"}
NAME = b"MicroPython"
VERSION = re.compile(rb"v(\d+\.\d+\.\d+)[^\0]{0,40}? on \d{4}-\d\d-\d\d")
INFO = "INFO_UF2.TXT"
MOUNTS = ("/media", "/run/media", "/mnt", "/Volumes")
LABELS = ("RPI-RP2", "RP2350")
TAKES_S, LOOK_AGAIN_S = 60.0, 0.1


@dataclass(frozen=True)
class Uf2:
    """A firmware: for which chip, and its version of MicroPython, "" if the file does not say it."""

    path: Path
    content: bytes
    chip: str
    version: str


def read_uf2(path: Path) -> Uf2:
    """Reads a file and checks each of its blocks. Raises Refused, which names the file and its fault; OSError."""
    content = path.read_bytes()
    if content[:4] != FIRST_MAGIC.to_bytes(4, "little"):
        raise Refused(f"{path} is no UF2 file: it begins with {content[:4].hex(' ') or 'nothing'}")
    if len(content) % BLOCK_BYTES:
        raise Refused(f"{path} is not whole: {len(content)} bytes are no multiple of {BLOCK_BYTES}")
    data = []
    families = set()
    expected = 0
    for at in range(0, len(content), BLOCK_BYTES):
        first, second, flags, _, size, number, count, family = HEADER.unpack_from(content, at)
        if (first, second) != (FIRST_MAGIC, SECOND_MAGIC) or size > BLOCK_BYTES - HEADER.size - 4:
            raise Refused(f"{path}: block {at // BLOCK_BYTES} is no UF2 block")
        if flags & NOT_FOR_FLASH or family == ABSOLUTE_FAMILY:
            continue
        if number != expected:
            raise Refused(f"{path}: block {at // BLOCK_BYTES} has the number {number}, expected {expected}")
        expected += 1
        families.add(family)
        data.append(content[at + HEADER.size : at + HEADER.size + size])
    if not data or expected != count:
        raise Refused(f"{path} is not whole: it has {expected} of {count if data else 1} blocks; was the download cut?")
    chips = {FAMILIES.get(family, f"family {family:08x}") for family in families}
    if len(chips) != 1 or not chips <= set(FAMILIES.values()):
        raise Refused(f"{path} is for {', '.join(sorted(chips))}, expected RP2040 or RP2350")
    program = b"".join(data)
    if NAME not in program:
        raise Refused(f"{path} is a program for {chips.pop()}, expected MicroPython")
    found = VERSION.search(program)
    return Uf2(path, content, chips.pop(), found[1].decode() if found else "")


def find_drive() -> Path | None:
    """The drive of a board in its loader, where systems mount it."""
    for mount in MOUNTS:
        for label in LABELS:
            for depth in ("", "*/", "*/*/"):
                for path in Path(mount).glob(f"{depth}{label}"):
                    if (path / INFO).is_file():
                        return path
    return None


def _no_link(path: str, flags: int) -> int:
    """Opens a file that is no symbolic link. A stick with the label of a board could lead to any file of the user's."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def copy_to_drive(firmware: Uf2, drive: Path) -> None:
    """Copies a firmware and waits until the drive is away, when the board starts it. Raises Refused, BoardError."""
    try:
        info = (drive / INFO).read_text(errors="replace")
    except OSError as error:
        raise Refused(f"{drive} is not the drive of an RP2: {INFO} cannot be read: {error.strerror}") from error
    chip = "RP2350" if "RP2350" in info else "RP2040"
    if chip != firmware.chip:
        raise Refused(f"{firmware.path} is for {firmware.chip}, and the board at {drive} has an {chip}")
    try:
        with open(drive / "holdfast.uf2", "wb", opener=_no_link) as file:
            file.write(firmware.content)
            file.flush()
            with suppress(OSError):  # the board may be gone as soon as it has all
                os.fsync(file.fileno())
    except OSError as error:
        raise BoardError(f"{drive}: the firmware cannot be copied: {error.strerror}; repeat the command") from error
    end_s = time.monotonic() + TAKES_S
    while (drive / INFO).exists():
        if time.monotonic() > end_s:
            raise BoardError(f"{drive}: the board has not started the firmware within {TAKES_S:g} s")
        time.sleep(LOOK_AGAIN_S)
