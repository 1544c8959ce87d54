"""The names in the root of a littlefs, from its first two sectors alone (littlefs, SPEC.md, "Metadata pairs").

Mounting would need the whole file system, as it follows every folder. A root of many names goes on in other sectors;
then only its first names are known.
"""

from struct import unpack_from
from zlib import crc32

FILE, FOLDER, SUPERBLOCK = 0x001, 0x002, 0x0FF
CREATE, DELETE = 0x401, 0x4FF
COMMIT, KIND_MASK = 0x500, 0x780
INVALID = 0x8000_0000
NO_DATA = 0x3FF  # the length of a tag that removes something
MAGIC = b"littlefs"


def names_in_root(head: bytes, sector_size: int) -> list[str] | None:
    """Returns the names in the root, None if these two sectors are not the begin of a littlefs."""
    sectors = [head[:sector_size], head[sector_size : 2 * sector_size]]
    found = [(_revision(sector), names) for sector in sectors if (names := _names(sector)) is not None]
    if not found:
        return None
    if len(found) == 2 and (found[1][0] - found[0][0]) & 0xFFFF_FFFF < 1 << 31:
        found.reverse()
    _, names = found[0]
    return sorted(names[1:]) if names and names[0] == MAGIC.decode() else None


def _revision(sector: bytes) -> int:
    return int(unpack_from("<I", sector)[0])


def _names(sector: bytes) -> list[str] | None:
    """The names after the last commit whose checksum is right, by their ids; None without any such commit."""
    names: list[str] = []
    committed: list[str] | None = None
    begin, at, last = 0, 4, 0xFFFF_FFFF
    while at + 4 <= len(sector):
        tag = int.from_bytes(sector[at : at + 4], "big") ^ last
        if tag & INVALID:
            break
        kind, number, size = tag >> 20 & 0x7FF, tag >> 10 & 0x3FF, tag & 0x3FF
        size = 0 if size == NO_DATA else size
        data = sector[at + 4 : at + 4 + size]
        if len(data) < size:
            break
        last = tag
        if kind & KIND_MASK == COMMIT:
            if len(data) < 4 or crc32(sector[begin : at + 4]) ^ 0xFFFF_FFFF != unpack_from("<I", data)[0]:
                break
            committed = names.copy()
            last ^= (kind & 1) << 31
            begin = at + 4 + size
        elif kind == CREATE:
            names.insert(number, "")
        elif kind == DELETE:
            del names[number : number + 1]
        elif kind in (FILE, FOLDER, SUPERBLOCK):
            names += [""] * (number + 1 - len(names))
            names[number] = data.decode(errors="replace")
        at += 4 + size
    return committed
