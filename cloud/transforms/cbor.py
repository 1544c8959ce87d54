"""CBOR (RFC 8949) into Python values: one whole, well-formed item."""

import math
import struct
from typing import Any

DEPTH_MAX = 32
"""How deep arrays, maps and tags may be nested. A pack needs far less."""
ITEMS_MAX = 2_000_000
"""The most items, also within others: a byte of an empty map takes a hundred bytes of memory when it is decoded. The
largest pack has 100,000 records, of five or six fields."""
DECIMAL_FRACTION = 4
"""The tag whose content becomes a float (section 3.4.4). Other tags are dropped, and their content is kept."""
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = range(8)
_INDEFINITE = 31
_FLOATS = {25: ">e", 26: ">f", 27: ">d"}
_SIMPLE_VALUES = {20: False, 21: True, 22: None, 23: None}
_BREAK = object()


class NotCbor(Exception):
    """Bytes are not one well-formed item. The text says what is wrong."""


def decode(content: bytes) -> Any:
    """Returns the item. Raises NotCbor, also for a map that has a key twice."""
    reader = _Reader(content)
    item = reader.item()
    if reader.at != len(content):
        raise NotCbor(f"{len(content) - reader.at} bytes after the item")
    return item


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.at = 0
        self._items_left = ITEMS_MAX
        self._content = content

    def item(self, depth: int = DEPTH_MAX, breakable: bool = False) -> Any:
        if depth < 0:
            raise NotCbor(f"nested deeper than {DEPTH_MAX}")
        self._items_left -= 1
        if self._items_left < 0:
            raise NotCbor(f"it has more than {ITEMS_MAX} items")
        start = self.at
        first = self._take(1)[0]
        major, info = first >> 5, first & 31
        if major == _SIMPLE:
            return self._simple(info, start, breakable)
        if info == _INDEFINITE and major in (_BYTES, _TEXT, _ARRAY, _MAP):
            return self._indefinite(major, depth)
        argument = self._argument(info, start)
        match major:
            case 0:
                return argument
            case 1:
                return -1 - argument
            case 2:
                return self._take(argument)
            case 3:
                return self._text(argument)
            case 4:
                return [self.item(depth - 1) for _ in range(self._fitting(argument))]
            case 5:
                return _pairs([self.item(depth - 1) for _ in range(2 * self._fitting(argument))])
        content = self.item(depth - 1)
        return _decimal(content) if argument == DECIMAL_FRACTION else content

    def _indefinite(self, major: int, depth: int) -> Any:
        """Reads items up to the break (section 3.2)."""
        items = []
        while (item := self.item(depth - 1, breakable=True)) is not _BREAK:
            items.append(item)
        if major == _ARRAY:
            return items
        if major == _MAP:
            return _pairs(items)
        kind, empty = (bytes, b"") if major == _BYTES else (str, "")
        if not all(type(item) is kind for item in items):
            raise NotCbor("a string with parts of another type")
        return empty.join(items)

    def _simple(self, info: int, start: int, breakable: bool) -> Any:
        if info in _FLOATS:
            (number,) = struct.unpack(_FLOATS[info], self._take(1 << info - 24))
            return number
        if info == _INDEFINITE and breakable:
            return _BREAK
        if info not in _SIMPLE_VALUES:
            raise NotCbor(f"simple value {info} at byte {start} is not known")
        return _SIMPLE_VALUES[info]

    def _argument(self, info: int, start: int) -> int:
        if info < 24:
            return info
        if info > 27:
            raise NotCbor(f"byte {start} begins no item")
        return int.from_bytes(self._take(1 << info - 24), "big")

    def _text(self, length: int) -> str:
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise NotCbor(f"a text is not UTF-8: {error}") from None

    def _fitting(self, count: int) -> int:
        """Raises NotCbor for more elements than bytes are left: each takes a byte at least."""
        if count > len(self._content) - self.at:
            raise NotCbor("it ends too early")
        return count

    def _take(self, length: int) -> bytes:
        taken = self._content[self.at : self.at + length]
        if len(taken) != length:
            raise NotCbor("it ends too early")
        self.at += length
        return taken


def _pairs(items: list[Any]) -> dict[Any, Any]:
    keys, values = items[::2], items[1::2]
    if len(keys) != len(values):
        raise NotCbor("a map has a key without a value")
    if not all(type(key) in (str, int, bytes) for key in keys):
        raise NotCbor("a map has a key that is no number or string")
    pairs = dict(zip(keys, values, strict=True))
    if len(pairs) != len(keys):
        raise NotCbor("a map has a key twice")
    return pairs


def _decimal(content: Any) -> float:
    """Returns the double nearest to mantissa · 10 ^ exponent."""
    match content:
        case [int(exponent), int(mantissa)]:
            number = float(f"{mantissa}e{exponent}")
            if math.isfinite(number):
                return number
    raise NotCbor("a decimal fraction is no finite number")
