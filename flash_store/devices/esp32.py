"""A partition of the ESP32's flash, with MicroPython's `esp32.Partition`, encrypted or not.

`esp32.Partition` decrypts all that it reads, and erased flash, decrypted, looks like noise. The store could not find
blank granules then. So this device also reads the raw flash, and returns erased bytes for each block that is erased
there.
"""

from flash_store.block_device import IOCTL_BLOCK_COUNT, IOCTL_BLOCK_ERASE, IOCTL_BLOCK_SIZE, IOCTL_SYNC
from flash_store.devices.bounds import check_program, check_within
from flash_store.errors import DeviceFailed

SECTOR_SIZE = 4096
SUBTYPE_UNDEFINED = 0x06  # ESP-IDF's data subtype for a partition that only the application uses
GRANULE = 16
ENCRYPTED_GRANULE = 32  # ESP-IDF encrypts 32 bytes at a time; to write 16, it rewrites the other 16 too
CIPHER_BLOCK = 16
_ERASED = b"\xff" * CIPHER_BLOCK


class Esp32Partition:
    """The data partition with this label, of subtype `undefined` and exactly `size` bytes.

    Raises DeviceFailed, and writes nothing, if no partition has the label, or if its type or size is different.
    """

    sector_size = SECTOR_SIZE

    def __init__(self, label: str, size: int) -> None:
        from esp32 import Partition  # only an ESP32 has this module

        try:
            self._partition = Partition(label)
        except OSError:
            raise DeviceFailed(f"the partition table has no partition {label}")
        kind, subtype, self._address, found, _, self._is_encrypted = self._partition.info()
        if (kind, subtype) != (Partition.TYPE_DATA, SUBTYPE_UNDEFINED):
            raise DeviceFailed(
                f"partition {label} has type {kind}, subtype 0x{subtype:02x}, expected data, undefined "
                f"({Partition.TYPE_DATA}, 0x{SUBTYPE_UNDEFINED:02x})"
            )
        if found != size:
            raise DeviceFailed(f"partition {label} has {found} bytes, expected {size}")
        self.granule = ENCRYPTED_GRANULE if self._is_encrypted else GRANULE
        self.sector_count = size // SECTOR_SIZE

    def readblocks(self, block: int, buffer, offset: int = 0) -> None:
        """Reads len(buffer) bytes from `offset` in `block`."""
        check_within(self, block, offset, len(buffer))
        self._partition.readblocks(block, buffer, offset)
        if self._is_encrypted:
            self._show_erased(block, buffer, offset)

    def writeblocks(self, block: int, buffer, offset: int = 0) -> None:
        """Programs whole granules; raises DeviceFailed for anything else."""
        check_program(self, block, offset, len(buffer))
        self._partition.writeblocks(block, buffer, offset)

    def ioctl(self, operation: int, argument: int) -> int | None:
        """The protocol's ioctl: sync, block count, block size, block erase."""
        if operation == IOCTL_BLOCK_ERASE:
            check_within(self, argument, 0, 0)
        if operation in (IOCTL_SYNC, IOCTL_BLOCK_COUNT, IOCTL_BLOCK_SIZE, IOCTL_BLOCK_ERASE):
            return self._partition.ioctl(operation, argument)
        return 0

    def _show_erased(self, block: int, buffer, offset: int) -> None:
        """Sets the bytes of erased cipher blocks to 0xFF. A block with data looks erased once in 2^128 cases."""
        from esp import flash_read  # it does not decrypt, unlike the partition

        start = offset // CIPHER_BLOCK * CIPHER_BLOCK
        end = offset + len(buffer)
        raw = bytearray((end - start + CIPHER_BLOCK - 1) // CIPHER_BLOCK * CIPHER_BLOCK)
        flash_read(self._address + block * self.sector_size + start, raw)
        for at in range(start, end, CIPHER_BLOCK):
            if raw[at - start : at - start + CIPHER_BLOCK] == _ERASED:
                first, last = max(at, offset), min(at + CIPHER_BLOCK, end)
                buffer[first - offset : last - offset] = _ERASED[: last - first]
