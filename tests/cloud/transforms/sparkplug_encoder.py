"""Encodes Sparkplug B by hand, field by field, so that the tests do not read with what they write."""

import struct
from collections.abc import Sequence

Value = tuple[int, bytes]
"""A field of the value: its number and its bytes behind the tag."""
T0_MS = 1_773_500_966_000


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def number_field(field: int, number: int) -> bytes:
    return varint(field << 3) + varint(number)


def bytes_field(field: int, content: bytes | str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def float_field(field: int, number: float) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<f", number)


def double_field(field: int, number: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", number)


def metric(
    name: str | None = None,
    value: bytes = b"",
    *,
    alias: int | None = None,
    timestamp: int | None = None,
    datatype: int | None = None,
    null: bool = False,
    unit: str | None = None,
    quality: int | None = None,
    historical: bool | None = None,
) -> bytes:
    """Returns a metric as a field of a payload. `value` is a field: 10 to 18."""
    properties = b"" if unit is None else bytes_field(1, "engUnit") + bytes_field(2, bytes_field(8, unit))
    if quality is not None:
        properties += bytes_field(1, "Quality") + bytes_field(2, number_field(1, 3) + number_field(3, quality))
    content = b"".join(
        [
            b"" if name is None else bytes_field(1, name),
            b"" if alias is None else number_field(2, alias),
            b"" if timestamp is None else number_field(3, timestamp),
            b"" if datatype is None else number_field(4, datatype),
            b"" if historical is None else number_field(5, historical),
            number_field(7, 1) if null else b"",
            bytes_field(9, properties) if properties else b"",
            value,
        ]
    )
    return bytes_field(2, content)


def payload(*metrics: bytes, timestamp: int | None = T0_MS, seq: int | None = 0) -> bytes:
    return b"".join(
        [
            b"" if timestamp is None else number_field(1, timestamp),
            *metrics,
            b"" if seq is None else number_field(3, seq),
        ]
    )


def data_set(columns: Sequence[str], types: Sequence[int], rows: Sequence[Sequence[bytes]]) -> bytes:
    content = number_field(1, len(columns))
    content += b"".join(bytes_field(2, column) for column in columns)
    content += b"".join(number_field(3, datatype) for datatype in types)
    for row in rows:
        content += bytes_field(4, b"".join(bytes_field(1, element) for element in row))
    return bytes_field(17, content)


def template(*metrics: bytes, definition: bool = False) -> bytes:
    parameter = bytes_field(3, bytes_field(1, "MaxRpm") + number_field(2, 3) + number_field(4, 3000))
    content = bytes_field(1, "1.0") + b"".join(metrics) + parameter + bytes_field(4, "Motor")
    return bytes_field(18, content + (number_field(5, 1) if definition else b""))


def compressed(body: bytes, *, timestamp: int | None = T0_MS, algorithm: str | None = None) -> bytes:
    """Returns a payload whose body is another one, compressed."""
    told = () if algorithm is None else (metric("algorithm", bytes_field(15, algorithm), datatype=12),)
    return payload(*told, timestamp=timestamp) + bytes_field(4, "SPBV1.0_COMPRESSED") + bytes_field(5, body)
