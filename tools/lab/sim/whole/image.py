"""Images of programs for an ESP32 (ESP-IDF, "App Image Format"): how they are made, and what a bootloader checks."""

import hashlib
import struct
from dataclasses import dataclass

MAGIC = 0xE9
HEADER = struct.Struct("<BBBBI")  # magic, segments, SPI mode, size and speed of the flash, entry
EXTENDED = struct.Struct("<B3sHBHH4sB")  # …, chip, …, whether a SHA-256 follows
SEGMENT = struct.Struct("<II")
DESCRIPTION = struct.Struct("<II8x32s32s16s16s32s32s80x")  # esp_app_desc_t, at the begin of the first segment
DESCRIPTION_MAGIC = 0xABCD_5432
CHECKSUM_SEED = 0xEF
DIO, NO_WRITE_PROTECT_PIN = 2, 0xEE
LOAD_ADDRESS, ENTRY = 0x3F40_0020, 0x400D_0020
MIB = 1024 * 1024


class BadImage(Exception):
    """These bytes are no image that the chip starts; the text says why, as its bootloader does."""


@dataclass(frozen=True)
class Image:
    """What a valid image says of itself. A bootloader has no `project`."""

    chip_id: int
    size: int
    project: str
    version: str


def make_image(chip_id: int, content: bytes, flash_size: int = 4 * MIB, project: str = "", version: str = "") -> bytes:
    """A valid image with one segment; with a description of the program where `project` is given."""
    described = b""
    if project:
        words = [project.encode(), version.encode(), b"12:00:00", b"Jan  1 2026", b"v5.5.1", bytes(32)]
        described = DESCRIPTION.pack(DESCRIPTION_MAGIC, 0, words[1], words[0], *words[2:])
    segment = described + content + bytes(-len(content) % 4)
    size_code = (flash_size // MIB).bit_length() - 1
    made = HEADER.pack(MAGIC, 1, DIO, size_code << 4, ENTRY)
    made += EXTENDED.pack(NO_WRITE_PROTECT_PIN, bytes(3), chip_id, 0, 0, 0xFFFF, bytes(4), 1)
    made += SEGMENT.pack(LOAD_ADDRESS, len(segment)) + segment
    made += bytes(15 - len(made) % 16) + bytes([_checksum([segment])])
    return made + hashlib.sha256(made).digest()


def check_image(content: bytes, chip_id: int) -> Image:
    """What the image at the begin of `content` says. Raises BadImage."""
    if len(content) < HEADER.size + EXTENDED.size or content[0] != MAGIC:
        raise BadImage(f"invalid header: 0x{content[:4][::-1].hex() or 'ffffffff'}")
    _, count, _, _, _ = HEADER.unpack_from(content)
    _, _, found_chip, _, _, _, _, has_hash = EXTENDED.unpack_from(content, HEADER.size)
    if found_chip != chip_id:
        raise BadImage(f"image has chip id {found_chip}, expected {chip_id}")
    at = HEADER.size + EXTENDED.size
    segments = []
    for number in range(count):
        if at + SEGMENT.size > len(content):
            raise BadImage(f"segment {number} lies behind the image's end")
        _, size = SEGMENT.unpack_from(content, at)
        at += SEGMENT.size
        if at + size > len(content):
            raise BadImage(f"segment {number} has invalid length 0x{size:x}")
        segments.append(content[at : at + size])
        at += size
    end = at + 15 - at % 16
    if len(content) <= end or content[end] != _checksum(segments):
        raise BadImage("checksum failed")
    end += 1
    if has_hash:
        if hashlib.sha256(content[:end]).digest() != content[end : end + 32]:
            raise BadImage("image hash failed - image is corrupt")
        end += 32
    project, version = _description(segments[0] if segments else b"")
    return Image(found_chip, end, project, version)


def _description(segment: bytes) -> tuple[str, str]:
    if len(segment) < DESCRIPTION.size:
        return "", ""
    magic, _, version, project, *_ = DESCRIPTION.unpack_from(segment)
    if magic != DESCRIPTION_MAGIC:
        return "", ""
    return project.rstrip(b"\0").decode(errors="replace"), version.rstrip(b"\0").decode(errors="replace")


def _checksum(segments: list[bytes]) -> int:
    """All bytes of all segments, one XORed with the other."""
    value = CHECKSUM_SEED
    for segment in segments:
        folded = segment
        while len(folded) > 1:
            half = (len(folded) + 1) // 2
            low = int.from_bytes(folded[:half], "little") ^ int.from_bytes(folded[half:], "little")
            folded = low.to_bytes(half, "little")
        value ^= folded[0] if folded else 0
    return value
