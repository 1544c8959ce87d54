"""Acknowledgements of success that follow one another: four bytes each, in both versions of MQTT."""

import sys
from array import array
from struct import pack
from typing import NamedTuple

from wire.packet_types import PUBACK, PUBREL

SIZE = 4
FIRST_BYTES = {PUBACK << 4: PUBACK, PUBREL << 4 | 2: PUBREL}
"""Of those that are cut, with their packet types."""


class Answers(NamedTuple):
    """Acknowledgements of one type from where one began to ``end``."""

    end: int
    packet_type: int
    identifiers: list[int]


def cut_answers(buffer: bytes, start: int) -> Answers:
    """Cuts all PUBACKs, or all PUBRELs, of success that begin at a place, up to the first packet that is anything else.

    None comes back where the first one is longer, cut off or has packet identifier 0.
    """
    whole = start + (len(buffer) - start) // SIZE * SIZE
    count = 0
    for index in (0, 1):
        column = buffer[start + index : whole : SIZE]
        wanted = b"\x02" if index else buffer[start : start + 1]
        alike = len(column) - len(column.lstrip(wanted))
        count = min(count, alike) if index else alike
    numbers = array("H", buffer[start : start + count * SIZE])
    if sys.byteorder == "little":
        numbers.byteswap()
    identifiers = numbers[1::2].tolist()
    if 0 in identifiers:
        del identifiers[identifiers.index(0) :]
    return Answers(start + len(identifiers) * SIZE, FIRST_BYTES[buffer[start]], identifiers)


def encode_answers(packet_type: int, identifiers: list[int]) -> bytes:
    """Returns PUBACKs, PUBRECs or PUBCOMPs of success."""
    encoded = bytearray((packet_type << 4, 2, 0, 0)) * len(identifiers)
    numbers = pack(f">{len(identifiers)}H", *identifiers)
    encoded[2::SIZE] = numbers[0::2]
    encoded[3::SIZE] = numbers[1::2]
    return bytes(encoded)
