"""The columns of a batch as bytes: numbers in planes, and tables of distinct texts."""

import sys
from array import array
from collections.abc import Iterable, Sequence

from wire.bulk.batch_frame import MESSAGES_MAX, MalformedBatch

WIDTHS = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""The kinds of a column that are not 0: bytes of each number."""


class ColumnReader:
    """Reads the columns of a batch from its first decompressed byte on; each is named, for the errors."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, name: str, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise MalformedBatch(f"{name}: {size} bytes from byte {self._at} on, but there are {len(taken)}")
        self._at += size
        return taken

    def number(self, name: str) -> int:
        number = shift = 0
        while True:
            (byte,) = self.take(name, 1)
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift > 56:
                raise MalformedBatch(f"{name}: a number of more than 63 bits before byte {self._at}")
        return number

    def messages(self) -> int:
        """Reads how many messages there are."""
        messages = self.number("count")
        if not 0 < messages <= MESSAGES_MAX:
            raise MalformedBatch(f"count: {messages} messages, expected 1 to {MESSAGES_MAX}")
        return messages

    def skip_column(self, name: str, entries: int) -> None:
        (kind,) = self.take(name, 1)
        if kind == 0:
            self.number(name)
        else:
            self._at += entries * kind

    def skip_table(self, name: str, most: int) -> None:
        sizes = self.column(name, self.entries(name, most))
        self._at += sum(sizes)

    def column(self, name: str, entries: int) -> "array[int]":
        (kind,) = self.take(name, 1)
        if kind == 0:
            number = self.number(name)
            return array(_code_for(number), (number,)) * entries
        if kind not in WIDTHS:
            raise MalformedBatch(f"{name}: a column of kind {kind}, expected 0, 1, 2, 4 or 8")
        planes = self.take(name, entries * kind)
        numbers = bytearray(entries * kind)
        for plane in range(kind):
            numbers[plane::kind] = planes[plane * entries : (plane + 1) * entries]
        column = array(WIDTHS[kind], numbers)
        if sys.byteorder == "big":
            column.byteswap()
        return column

    def places(self, name: str, entries: int, table: Sequence[object]) -> "array[int]":
        column = self.column(name, entries)
        if max(column) >= len(table):
            raise MalformedBatch(f"{name}: place {max(column)} in a table of {len(table)}")
        return column

    def entries(self, name: str, most: int) -> int:
        """Reads how many entries a table has. None may be of no use, so there are not more than messages."""
        entries = self.number(name)
        if not 0 < entries <= most:
            raise MalformedBatch(f"{name}: {entries} entries for {most} messages")
        return entries

    def table(self, name: str, most: int) -> list[bytes]:
        entries = self.entries(name, most)
        return [self.take(name, size) for size in self.column(name, entries)]

    def end(self) -> None:
        if self._at < len(self._data):
            raise MalformedBatch(f"{len(self._data) - self._at} bytes behind the payloads")


def encode_number(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def encode_column(numbers: Sequence[int]) -> bytes:
    if numbers.count(numbers[0]) == len(numbers):
        return b"\0" + encode_number(numbers[0])
    code = _code_for(max(numbers))
    column = array(code, numbers)
    if sys.byteorder == "big":
        column.byteswap()
    width, encoded = column.itemsize, column.tobytes()
    return bytes((width,)) + b"".join([encoded[plane::width] for plane in range(width)])


def encode_table(values: Iterable[bytes]) -> bytes:
    entries = list(values)
    return encode_number(len(entries)) + encode_column(list(map(len, entries))) + b"".join(entries)


def _code_for(largest: int) -> str:
    return "B" if largest < 1 << 8 else "H" if largest < 1 << 16 else "I" if largest < 1 << 32 else "Q"
