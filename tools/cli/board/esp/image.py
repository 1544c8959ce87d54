"""The image of a board's file system, and in which order it is written."""

from collections.abc import Mapping
from pathlib import Path

from littlefs import LittleFS, LittleFSError

from tools.cli.board.content import MARK
from tools.cli.board.errors import Refused
from tools.cli.board.esp.firmware import runs
from tools.cli.board.esp.loader import Piece
from tools.cli.board.stores import SECTOR_BYTES

PROGRAM_BYTES = 32  # that the file system of an ESP32 programs at once
HEAD_SECTORS = 2  # of a littlefs: its root, twice
HEAD_BYTES = HEAD_SECTORS * SECTOR_BYTES


def make_image(files: Mapping[str, bytes], size: int) -> bytes:
    """Returns a littlefs of `size` bytes with these files. Raises Refused if they do not fit.

    Both sectors of its root have the same content, so that a cut between them leaves a whole file system. The mark is
    the first file: a cut within a sector may leave the first files of the root, and they say that they are ours.
    """
    image = LittleFS(
        block_size=SECTOR_BYTES, block_count=size // SECTOR_BYTES, prog_size=PROGRAM_BYTES, read_size=PROGRAM_BYTES
    )
    try:
        for name, content in sorted(files.items(), key=lambda file: file[0] != MARK):
            image.makedirs(str(Path(name).parent), exist_ok=True)
            with image.open(name, "wb") as file:
                file.write(content)
    except LittleFSError as error:
        needed = sum(len(content) for content in files.values())
        raise Refused(f"{needed // 1024} KiB of files do not fit into the board's {size // 1024} KiB") from error
    made = bytearray(image.context.buffer)
    first, second = made[:SECTOR_BYTES], made[SECTOR_BYTES:HEAD_BYTES]
    newest = max(first, second, key=lambda one: int.from_bytes(one[:4], "little") if bytes(one).strip(b"\xff") else -1)
    made[:HEAD_BYTES] = bytes(newest) * 2
    return bytes(made)


def image_pieces(image: bytes, at: int) -> list[Piece]:
    """What of an image has to be written at `at`, in its order: the root comes last, its first sector at the very end.

    Until then a board finds an erased sector there, and makes an empty file system.
    """
    rest = [(at + HEAD_BYTES + start, content) for start, content in runs(image[HEAD_BYTES:])]
    return [*rest, (at + SECTOR_BYTES, image[SECTOR_BYTES:HEAD_BYTES]), (at, image[:SECTOR_BYTES])]
