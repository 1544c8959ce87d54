"""A region of the RP2040's and RP2350's flash, by MicroPython's `rp2.Flash`.

`rp2.Flash` speaks the extended protocol, programs without erasing where an offset is given, and trusts its caller:
it checks neither bounds nor alignment and never reports a failure. The chip's ROM programs whole pages of 256 bytes, so
that is the granule; interrupts are off and the other core stands still during a program and an erase.
"""

from flash_store.block_device import IOCTL_BLOCK_COUNT, IOCTL_BLOCK_ERASE, IOCTL_BLOCK_SIZE, IOCTL_SYNC
from flash_store.devices.bounds import check_program, check_within
from flash_store.errors import DeviceFailed

SECTOR_SIZE = 4096
PAGE_SIZE = 256


class Rp2Flash:
    """`length` bytes from `start` of the area that the firmware keeps for storage, both multiples of 4096.

    No file system may have these bytes: with the stock firmware one has all of them (docs/how-to/board-flash.md).
    Raises DeviceFailed where the area does not hold the region.
    """

    sector_size = SECTOR_SIZE
    granule = PAGE_SIZE

    def __init__(self, start: int, length: int) -> None:
        from rp2 import Flash  # only an RP2 has it

        try:
            self._flash = Flash(start=start, len=length)
        except ValueError:
            raise DeviceFailed(f"{length} bytes from {start} are no whole sectors of this board's storage area")
        self.sector_count = length // SECTOR_SIZE

    def readblocks(self, block: int, buffer, offset: int = 0) -> None:
        """Read len(buffer) bytes from `offset` in `block`."""
        check_within(self, block, offset, len(buffer))
        self._flash.readblocks(block, buffer, offset)

    def writeblocks(self, block: int, buffer, offset: int = 0) -> None:
        """Program whole pages; else DeviceFailed."""
        check_program(self, block, offset, len(buffer))
        self._flash.writeblocks(block, buffer, offset)

    def ioctl(self, operation: int, argument: int) -> int | None:
        """The protocol's ioctl: sync, block count, block size, block erase."""
        if operation == IOCTL_BLOCK_ERASE:
            check_within(self, argument, 0, 0)
        if operation in (IOCTL_SYNC, IOCTL_BLOCK_COUNT, IOCTL_BLOCK_SIZE, IOCTL_BLOCK_ERASE):
            return self._flash.ioctl(operation, argument)
        return 0
