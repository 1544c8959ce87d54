"""A stream whose bytes both ends can compute; runs on CPython and on MicroPython."""

from struct import pack

BLOCK_BYTES = 64


def piece(start: int, length: int) -> bytes:
    """Returns `length` bytes of the stream from byte `start` on."""
    first = start // BLOCK_BYTES
    last = (start + length) // BLOCK_BYTES + 1
    blocks = [pack(">I", number * 2654435761 & 0xFFFFFFFF) * (BLOCK_BYTES // 4) for number in range(first, last)]
    skip = start - first * BLOCK_BYTES
    return b"".join(blocks)[skip : skip + length]


class Check:
    """Counts received bytes, and raises ValueError if they are not the stream's."""

    def __init__(self) -> None:
        self.total = 0

    def take(self, data: bytes) -> None:
        if data != piece(self.total, len(data)):
            raise ValueError(f"a wrong byte after byte {self.total}")
        self.total += len(data)
