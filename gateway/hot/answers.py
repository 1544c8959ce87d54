"""Acknowledgements of success that follow one another: four bytes each, in both versions of MQTT."""

import sys
from array import array
from struct import pack
from typing import NamedTuple

from wire.packet_types import PUBACK, PUBCOMP, PUBREC, PUBREL

SIZE = 4
FIRST_BYTES = {PUBACK << 4: PUBACK, PUBREC << 4: PUBREC, PUBREL << 4 | 2: PUBREL, PUBCOMP << 4: PUBCOMP}
"""Of acknowledgements, with their packet types."""
FIRST_BYTE_OF = {packet_type: first_byte for first_byte, packet_type in FIRST_BYTES.items()}


class Answers(NamedTuple):
    """Acknowledgements of one type from where one began to ``end``."""

    end: int
    packet_type: int
    identifiers: list[int]


def cut_answers(buffer: bytes, start: int) -> Answers:
    """Cuts all acknowledgements of one type and of success that begin at a place, up to the first other packet.

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
    """Returns acknowledgements of success."""
    encoded = bytearray((FIRST_BYTE_OF[packet_type], 2, 0, 0)) * len(identifiers)
    numbers = pack(f">{len(identifiers)}H", *identifiers)
    encoded[2::SIZE] = numbers[0::2]
    encoded[3::SIZE] = numbers[1::2]
    return bytes(encoded)
