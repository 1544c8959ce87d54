"""Reads the whole records of one page of an SQLite file, whatever is around it.

The file format is https://www.sqlite.org/fileformat2.html#b_tree_pages. Only pages of tables and indexes have records.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from gateway.store.repair.pages import Pages

INTERIOR_INDEX, INTERIOR_TABLE, LEAF_INDEX, LEAF_TABLE = 2, 5, 10, 13
KINDS = (INTERIOR_INDEX, INTERIOR_TABLE, LEAF_INDEX, LEAF_TABLE)
FILE_HEADER_SIZE = 100
INTEGER_SIZES = (0, 1, 2, 3, 4, 6, 8)  # by serial type
REAL, ZERO, ONE, BLOB, TEXT = 7, 8, 9, 12, 13

Value = int | float | str | bytes | None


class Record(NamedTuple):
    """A row of a table with its ``rowid``, or an entry of an index, which has none."""

    rowid: int | None
    values: tuple[Value, ...]


class Damaged(Exception):
    """The bytes are not a record, or not a page of records."""


def records(pages: Pages, number: int, used: set[int]) -> Iterator[Record | None]:
    """Yields the records of a page, None for a damaged one.

    Args:
        pages: the file.
        number: the page's.
        used: gets the number of the page if it has records, and of the overflow pages of its records.
    """
    page = pages[number]
    start = FILE_HEADER_SIZE if number == 1 else 0
    if not page or page[start] not in KINDS:
        return
    used.add(number)
    kind = page[start]
    (count,) = struct.unpack_from(">H", page, start + 3)
    first_pointer = start + (12 if kind in (INTERIOR_INDEX, INTERIOR_TABLE) else 8)
    if first_pointer + 2 * count > pages.size:
        yield None
    elif kind != INTERIOR_TABLE:
        for cell in struct.unpack_from(f">{count}H", page, first_pointer):
            try:
                yield _record(pages, page, kind, cell, used)
            except (Damaged, IndexError, struct.error, UnicodeDecodeError):
                yield None


def below(pages: Pages, number: int) -> list[int]:
    """Returns the child pages of an inner page of a tree, none for other pages."""
    page = pages[number]
    start = FILE_HEADER_SIZE if number == 1 else 0
    if not page or page[start] not in (INTERIOR_INDEX, INTERIOR_TABLE):
        return []
    (count,) = struct.unpack_from(">H", page, start + 3)
    first = start + 12
    cells = struct.unpack_from(f">{count}H", page, first) if first + 2 * count <= pages.size else ()
    return [struct.unpack_from(">I", page, offset)[0] for offset in (start + 8, *cells) if offset + 4 <= pages.size]


def is_of_table(pages: Pages, number: int) -> bool:
    """Whether a page belongs to a table's tree, and all its records are whole."""
    page = pages[number]
    kind = page[FILE_HEADER_SIZE if number == 1 else 0] if page else None
    return kind in (INTERIOR_TABLE, LEAF_TABLE) and None not in records(pages, number, set())


def _record(pages: Pages, page: bytes, kind: int, cell: int, used: set[int]) -> Record:
    if kind == INTERIOR_INDEX:
        cell += 4  # the page below
    size, cell = _varint(page, cell)
    rowid = None
    if kind == LEAF_TABLE:
        rowid, cell = _varint(page, cell)
    payload = _payload(pages, page, cell, size, kind == LEAF_TABLE, used)
    return Record(rowid, tuple(_values(payload)))


def _payload(pages: Pages, page: bytes, cell: int, size: int, is_table: bool, used: set[int]) -> bytes:
    """Returns a cell's payload, joined from its page and its overflow pages."""
    usable = pages.size
    most = usable - 35 if is_table else (usable - 12) * 64 // 255 - 23
    least = (usable - 12) * 32 // 255 - 23
    here = size
    if size > most:
        here = least + (size - least) % (usable - 4)
        here = here if here <= most else least
    if cell + here > usable or size > pages.count * usable:
        raise Damaged
    if here == size:
        return page[cell : cell + size]
    parts = [page[cell : cell + here]]
    (number,) = struct.unpack_from(">I", page, cell + here)
    left = size - here
    chain = []
    while left > 0:
        following = pages[number]
        if not following:
            raise Damaged
        chain.append(number)
        parts.append(following[4 : 4 + left])
        left -= usable - 4
        (number,) = struct.unpack_from(">I", following)
    if number:
        raise Damaged
    used.update(chain)
    return b"".join(parts)


def _values(payload: bytes) -> Iterator[Value]:
    header_size, at = _varint(payload, 0)
    data = header_size
    while at < header_size:
        serial_type, at = _varint(payload, at)
        if serial_type >= BLOB:
            size = (serial_type - BLOB) // 2
            value = payload[data : data + size]
            if len(value) < size:
                raise Damaged
            yield value if serial_type % 2 == 0 else value.decode()
        elif serial_type in (ZERO, ONE):
            size = 0
            yield serial_type - ZERO
        elif serial_type == REAL:
            size = 8
            yield float(struct.unpack_from(">d", payload, data)[0])
        elif serial_type < len(INTEGER_SIZES):
            size = INTEGER_SIZES[serial_type]
            yield int.from_bytes(payload[data : data + size], "big", signed=True) if size else None
        else:
            raise Damaged
        data += size
    if at != header_size or data != len(payload):
        raise Damaged


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns a number of up to 64 bits, and where it ends."""
    if data[at] < 0x80:  # nearly every number
        return data[at], at + 1
    value = 0
    for index in range(8):
        byte = data[at + index]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1
    value = value << 8 | data[at + 8]
    return value - (1 << 64) if value >> 63 else value, at + 9
