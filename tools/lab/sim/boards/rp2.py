"""`rp2` of a simulated board: the storage area of its flash.

Where the file `storage` is in the chip's folder, it tells where in the flash the area begins, and its size.

A real `rp2.Flash` checks neither bounds nor pages, and would overwrite other data. This one raises AssertionError.
"""

import _chip

SECTOR_SIZE = 4096
PAGE_SIZE = 256
TOLD = _chip.read("storage").split() if _chip.FOLDER else []
STORAGE_AT = int(TOLD[0]) if TOLD else 0
STORAGE_SIZE = int(TOLD[1]) if TOLD else 16 * SECTOR_SIZE
STORAGE = _chip.memory("flash", STORAGE_AT + STORAGE_SIZE)


class Flash:
    """A region of the storage area. Raises ValueError if it does not lie in the area."""

    def __init__(self, *, start: int = 0, len: int = -1) -> None:
        size = STORAGE_SIZE - start if len == -1 else len
        if not 0 <= start < STORAGE_SIZE or start % SECTOR_SIZE or size <= 0 or size % SECTOR_SIZE:
            raise ValueError
        if start + size > STORAGE_SIZE:
            raise ValueError
        self._base, self._size = STORAGE_AT + start, size

    def readblocks(self, block: int, buffer: bytearray, offset: int) -> None:
        start = self._start(block, offset, len(buffer))
        buffer[:] = STORAGE[start : start + len(buffer)]

    def writeblocks(self, block: int, buffer: bytearray, offset: int) -> None:
        start = self._start(block, offset, len(buffer))
        assert start % PAGE_SIZE == len(buffer) % PAGE_SIZE == 0, "the ROM programs whole pages"
        _chip.program(STORAGE, start, buffer)

    def ioctl(self, operation: int, argument: int) -> int | None:
        if operation == 4:
            return self._size // SECTOR_SIZE
        if operation == 5:
            return SECTOR_SIZE
        if operation == 6:
            start = self._start(argument, 0, SECTOR_SIZE)
            STORAGE[start : start + SECTOR_SIZE] = b"\xff" * SECTOR_SIZE
        return 0 if operation in (1, 2, 3, 6) else None

    def _start(self, block: int, offset: int, length: int) -> int:
        start = block * SECTOR_SIZE + offset
        assert start >= 0 and start + length <= self._size, "a real chip would go on beyond the region"
        return self._base + start
