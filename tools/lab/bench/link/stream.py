"""A stream of which each end knows every byte; runs on CPython and on MicroPython."""

from struct import pack

BLOCK_BYTES = 64


def piece(start: int, length: int) -> bytes:
    """`length` bytes of the stream from byte `start` on."""
    first = start // BLOCK_BYTES
    last = (start + length) // BLOCK_BYTES + 1
    blocks = [pack(">I", number * 2654435761 & 0xFFFFFFFF) * (BLOCK_BYTES // 4) for number in range(first, last)]
    skip = start - first * BLOCK_BYTES
    return b"".join(blocks)[skip : skip + length]


class Check:
    """Counts what comes, and raises ValueError where it is not the stream."""

    def __init__(self) -> None:
        self.total = 0

    def take(self, data: bytes) -> None:
        if data != piece(self.total, len(data)):
            raise ValueError(f"something else after byte {self.total}")
        self.total += len(data)
