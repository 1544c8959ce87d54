"""CBOR (RFC 8949) into Python values: one whole, well-formed item."""

import math
import struct
from contextlib import suppress
from typing import Any

DEPTH_MAX = 32
"""How deep arrays, maps and tags may be nested. A pack needs far less."""
ITEMS_MAX = 2_000_000
"""The most items, also within others: a byte of an empty map takes a hundred bytes of memory when it is decoded. The
largest pack has 100,000 records, of five or six fields."""
_POSITIVE_BIGNUM, _NEGATIVE_BIGNUM, _DECIMAL_FRACTION, _BIGFLOAT = 2, 3, 4, 5
"""The tags whose content becomes a number (sections 3.4.3 and 3.4.4). Others are dropped, and their content is kept."""
BIGNUM_MAX = 128
"""The longest bignum (bytes) that becomes a number: it is within what a double carries."""
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = range(8)
_INDEFINITE = 31
_FLOATS = {25: ">e", 26: ">f", 27: ">d"}
_ONE_BYTE, _SIMPLE_MIN = 24, 32  # simple values of two bytes begin at 32 (section 3.3)
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
        return _tagged(argument, self.item(depth - 1))

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
            if info == _ONE_BYTE and (info := self._take(1)[0]) < _SIMPLE_MIN:
                raise NotCbor(f"simple value {info} at byte {start} has one byte too many")
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


def _tagged(tag: int, content: Any) -> Any:
    if tag in (_POSITIVE_BIGNUM, _NEGATIVE_BIGNUM):
        return _bignum(content, tag == _NEGATIVE_BIGNUM)
    if tag == _DECIMAL_FRACTION:
        return _decimal(content)
    return _bigfloat(content) if tag == _BIGFLOAT else content


def _bignum(content: Any, negative: bool) -> int:
    if not isinstance(content, bytes):
        raise NotCbor("a bignum is no byte string")
    if len(content) > BIGNUM_MAX:
        raise NotCbor(f"a bignum has {len(content)} bytes; up to {BIGNUM_MAX} are a number")
    number = int.from_bytes(content, "big")
    return -1 - number if negative else number


def _decimal(content: Any) -> float:
    """Returns the double nearest to mantissa · 10 ^ exponent."""
    if parts := _parts(content):
        exponent, mantissa = parts
        number = float(f"{mantissa}e{exponent}")
        if math.isfinite(number):
            return number
    raise NotCbor("a decimal fraction is no finite number")


def _bigfloat(content: Any) -> float:
    """Returns the double nearest to mantissa · 2 ^ exponent."""
    if parts := _parts(content):
        exponent, mantissa = parts
        with suppress(OverflowError):
            return math.ldexp(mantissa, exponent)
    raise NotCbor("a bigfloat is no finite number")


def _parts(content: Any) -> tuple[int, int] | None:
    """Returns the exponent and the mantissa in the content of a tag; None for other content."""
    if isinstance(content, list) and list(map(type, content)) == [int, int]:
        return content[0], content[1]
    return None
