"""MicroPython's `.bin` file for an ESP32: what it is for, whether it is whole, and its parts."""

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

from esp_idf_defs.partitions import APP_TYPE, PARTITION_TABLE_OFFSET, PartitionTable

from tools.cli.board.errors import Refused
from tools.cli.board.esp.loader import MIB, Piece
from tools.cli.board.stores import SECTOR_BYTES
from tools.cli.device.partitions import BEFORE_TABLE, PartitionError, read_flash_size, read_table

MAGIC = 0xE9
IMAGE_HEADER = struct.Struct("<BBBBIB3sHBHH4sB")
SEGMENT = struct.Struct("<II")
DESCRIPTION = struct.Struct("<II8x32s32s")  # esp_app_desc_t: magic, …, version, project; in the first segment
DESCRIPTION_AT = IMAGE_HEADER.size + SEGMENT.size
DESCRIPTION_MAGIC = 0xABCD_5432
HEAD_BYTES = DESCRIPTION_AT + DESCRIPTION.size  # of a program, which tell what it is
CHECKSUM_SEED = 0xEF
HASH_BYTES = 32
MICROPYTHON = "micropython"  # the project that MicroPython's own programs name
TITLES = {
    0: "ESP32",
    2: "ESP32-S2",
    5: "ESP32-C3",
    9: "ESP32-S3",
    12: "ESP32-C2",
    13: "ESP32-C6",
    16: "ESP32-H2",
    18: "ESP32-P4",
    23: "ESP32-C5",
}
UF2_MAGIC = b"UF2\n"


@dataclass(frozen=True)
class Firmware:
    """MicroPython for one kind of ESP32.

    Attributes:
        title: the kind, as `Chip.title`.
        version: of MicroPython.
        flash_size: of the chip that it is built for, in bytes.
        begin: where on the flash the file's first byte belongs.
        content: the file.
        table: its partition table.
        program: where on the flash its program begins.
    """

    path: Path
    title: str
    version: str
    flash_size: int
    begin: int
    content: bytes
    table: PartitionTable
    program: int

    @property
    def program_bytes(self) -> int:
        return len(self.content) - (self.program - self.begin)

    def pieces(self) -> list[Piece]:
        """Everything but the partition table: the program, and what is before it without its blank sectors."""
        before = self.content[: self.program - self.begin]
        table = PARTITION_TABLE_OFFSET - self.begin
        parts = [(0, before[:table]), (table + SECTOR_BYTES, before[table + SECTOR_BYTES :])]
        small = [(self.begin + at + start, run) for at, part in parts for start, run in runs(part)]
        return [(self.program, self.content[self.program - self.begin :]), *small]


def runs(content: bytes) -> list[Piece]:
    """The runs of sectors that are not blank, with their offsets."""
    found: list[tuple[int, bytes]] = []
    for at in range(0, len(content), SECTOR_BYTES):
        sector = content[at : at + SECTOR_BYTES]
        if not sector.strip(b"\xff"):
            continue
        if found and found[-1][0] + len(found[-1][1]) == at:
            found[-1] = (found[-1][0], found[-1][1] + sector)
        else:
            found.append((at, sector))
    return found


def read_firmware(path: Path) -> Firmware:
    """Reads a file and checks it. Raises Refused, which names the file and its fault; OSError."""
    content = path.read_bytes()
    if content[:4] == UF2_MAGIC:
        raise Refused(f"{path} is a UF2 file, for an RP2 or another drive; expected a .bin file for an ESP32")
    if not content or content[0] != MAGIC:
        raise Refused(f"{path} is no firmware of an ESP32: it begins with {content[:4].hex(' ') or 'nothing'}")
    try:
        table = read_table(path)
        flash_size = read_flash_size(path)
    except PartitionError as error:
        raise Refused(str(error)) from error
    begin = next(
        one
        for one in BEFORE_TABLE
        if content[PARTITION_TABLE_OFFSET - one : PARTITION_TABLE_OFFSET - one + 2] == b"\xaa\x50"
    )
    program = min((one.offset for one in table if one.type == APP_TYPE), default=None)
    if program is None or program < begin:
        raise Refused(f"{path}: its partition table has no program")
    found = [check_image(content[: PARTITION_TABLE_OFFSET - begin], f"{path}, at its begin")]
    found.append(check_image(content[program - begin :], f"{path}, at 0x{program - begin:x}"))
    if found[0] != found[1]:
        raise Refused(f"{path}: its bootloader is for {found[0]} and its program for {found[1]}")
    version, project = describe_program(content[program - begin :])
    if project != MICROPYTHON:
        raise Refused(f"{path} is the program {project!r}, expected MicroPython")
    return Firmware(path, found[1], version, flash_size, begin, content, table, program)


def check_image(content: bytes, where: str) -> str:
    """Checks the image at the begin of `content`; returns the kind of chip that it is for. Raises Refused."""
    if len(content) < IMAGE_HEADER.size or content[0] != MAGIC:
        raise Refused(f"{where}: expected the image of a program, found {content[:4].hex(' ') or 'nothing'}")
    _, count, _, _, _, _, _, chip, _, _, _, _, has_hash = IMAGE_HEADER.unpack_from(content)
    at = IMAGE_HEADER.size
    checksum = CHECKSUM_SEED
    for _ in range(count):
        if at + SEGMENT.size > len(content):
            raise Refused(f"{where}: the image is not whole; was the download cut?")
        _, size = SEGMENT.unpack_from(content, at)
        at += SEGMENT.size
        if at + size > len(content):
            raise Refused(f"{where}: the image is not whole; was the download cut?")
        checksum ^= _folded(content[at : at + size])
        at += size
    end = at + 16 - at % 16
    if end > len(content) or content[end - 1] != checksum:
        raise Refused(f"{where}: the image's checksum is wrong; was the download cut?")
    if has_hash and hashlib.sha256(content[:end]).digest() != content[end : end + HASH_BYTES]:
        raise Refused(f"{where}: the image's hash is wrong; was the download cut?")
    return TITLES.get(chip, f"chip {chip}")


def describe_program(content: bytes) -> tuple[str, str]:
    """Returns version and project of the program at the begin of `content`; ("", "") if no program is there."""
    if len(content) < HEAD_BYTES or content[0] != MAGIC:
        return "", ""
    magic, _, version, project = DESCRIPTION.unpack_from(content, DESCRIPTION_AT)
    if magic != DESCRIPTION_MAGIC:
        return "", "unknown"
    return _text(version), _text(project) or "unknown"


def size_text(size: int) -> str:
    """`4 MiB`, or KiB below one."""
    return f"{size // MIB} MiB" if size >= MIB else f"{size // 1024} KiB"


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode(errors="replace")


def _folded(content: bytes) -> int:
    """All bytes XORed."""
    while len(content) > 1:
        half = (len(content) + 1) // 2
        low = int.from_bytes(content[:half], "little") ^ int.from_bytes(content[half:], "little")
        content = low.to_bytes(half, "little")
    return content[0] if content else 0
