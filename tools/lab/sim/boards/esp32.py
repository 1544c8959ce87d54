"""`esp32` of a simulated board: the partitions of one flash, plain and encrypted ones.

Where the file `partitions` is in the chip's folder, it tells them: a line each, with type, subtype, address, size,
label, and 1 for an encrypted one.

The cipher is a keystream made from the address. Like the real cipher, it turns erased flash into noise when it is read,
and it needs whole cipher blocks when it is written.
"""

import hashlib

import _chip

SECTOR_SIZE = 4096
KEY_SIZE = 32
ESP_ERR_INVALID_SIZE = 0x104
ENOENT = 2
FLASH_SIZE = 0x20000
STORE = (1, 0x06, 0x10000, 0x10000, "holdfast", False)
ANY_SUBTYPE = 0xFF
HEAP_DATA, HEAP_EXEC = 4, 1


def _written_table() -> list:
    """The partitions that the chip's folder tells; one for a store where it tells none."""
    found: list = []
    for line in _chip.read("partitions").split("\n") if _chip.FOLDER else ():
        if line:
            kind, subtype, address, size, label, encrypted = line.split(" ")
            found.append((int(kind), int(subtype), int(address), int(size), label, encrypted == "1"))
    return found or [STORE]


TABLE: list = _written_table()  # (type, subtype, address, size, label, is encrypted) of each partition
FLASH = _chip.memory("flash", FLASH_SIZE)  # the whole chip, not decrypted


def set_table(flash_size: int, partitions: list) -> None:
    """Replaces the chip by an erased one with these partitions."""
    FLASH[:] = b"\xff" * flash_size
    TABLE[:] = partitions


def idf_heap_info(capabilities: int) -> list:
    """The regions of the heap outside of MicroPython's: (total, free, largest free block, least free so far)."""
    return [(113_840, 69_336, 65_536, 65_536)] if capabilities == HEAP_DATA else []


class Partition:
    """The partition with this label. Raises OSError if there is none, or for an access outside of it.

    Without an offset, `readblocks` and `writeblocks` take whole sectors, and a write erases its sectors first.
    """

    TYPE_APP, TYPE_DATA = 0, 1

    def __init__(self, label) -> None:
        if isinstance(label, tuple):  # an entry of the table
            self._entry = label
            return
        found = sorted(entry for entry in TABLE if entry[4] == label)  # programs come before data
        if not found:
            raise OSError(ENOENT)
        self._entry = found[0]

    @classmethod
    def find(
        cls, type: int = TYPE_APP, subtype: int = ANY_SUBTYPE, label: str | None = None, block_size: int = SECTOR_SIZE
    ) -> list:
        return [
            cls(entry)
            for entry in TABLE
            if entry[0] == type and subtype in (ANY_SUBTYPE, entry[1]) and label in (None, entry[4])
        ]

    def info(self) -> tuple:
        return self._entry

    def readblocks(self, block: int, buffer: bytearray, offset: int = 0) -> None:
        start = self._start(block, offset, len(buffer))
        buffer[:] = self._ciphered(start, FLASH[start : start + len(buffer)])

    def writeblocks(self, block: int, buffer: bytearray, offset: int | None = None) -> None:
        if offset is None:
            for number in range(block, block + len(buffer) // SECTOR_SIZE):
                self.ioctl(6, number)
        start = self._start(block, offset or 0, len(buffer))
        if self._entry[5] and (start % 16 or len(buffer) % 16):
            raise OSError(-ESP_ERR_INVALID_SIZE)
        _chip.program(FLASH, start, self._ciphered(start, buffer))

    def ioctl(self, operation: int, argument: int) -> int | None:
        if operation == 4:
            return self._entry[3] // SECTOR_SIZE
        if operation == 5:
            return SECTOR_SIZE
        if operation == 6:
            start = self._start(argument, 0, SECTOR_SIZE)
            FLASH[start : start + SECTOR_SIZE] = b"\xff" * SECTOR_SIZE
        return 0 if operation in (1, 2, 3, 6) else None

    def _start(self, block: int, offset: int, length: int) -> int:
        start = block * SECTOR_SIZE + offset
        if not 0 <= start <= start + length <= self._entry[3]:
            raise OSError(-ESP_ERR_INVALID_SIZE)
        return self._entry[2] + start

    def _ciphered(self, start: int, content: bytes | bytearray) -> bytes:
        if not self._entry[5]:
            return bytes(content)
        first = start // KEY_SIZE
        last = (start + len(content) - 1) // KEY_SIZE
        keys = b"".join(_key(number) for number in range(first, last + 1))
        return bytes(byte ^ keys[start % KEY_SIZE + at] for at, byte in enumerate(content))


def _key(number: int) -> bytes:
    return hashlib.sha256(b"key" + number.to_bytes(4, "big")).digest()
