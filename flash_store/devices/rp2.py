"""A region of the RP2040's and RP2350's flash, with MicroPython's `rp2.Flash`.

`rp2.Flash` has the extended protocol: it programs without an erase if it gets an offset. It checks neither bounds nor
alignment, and never reports a failure. The chip's ROM programs whole pages of 256 bytes, so the granule is a page.
During a program or an erase, interrupts are off and the other core is stopped.
"""

from flash_store.block_device import IOCTL_BLOCK_COUNT, IOCTL_BLOCK_ERASE, IOCTL_BLOCK_SIZE, IOCTL_SYNC
from flash_store.devices.bounds import check_program, check_within
from flash_store.errors import DeviceFailed

SECTOR_SIZE = 4096
PAGE_SIZE = 256


class Rp2Flash:
    """`length` bytes from `start` in the storage area of the board's MicroPython; both are multiples of 4096.

    No file system may use these bytes; the stock firmware's uses the whole area (docs/how-to/board-flash.md).
    Raises DeviceFailed if the region does not lie in the area.
    """

    sector_size = SECTOR_SIZE
    granule = PAGE_SIZE

    def __init__(self, start: int, length: int) -> None:
        from rp2 import Flash  # only an RP2 has this module

        try:
            self._flash = Flash(start=start, len=length)
        except ValueError:
            raise DeviceFailed(f"{length} bytes from {start} are not whole sectors of this board's storage area")
        self.sector_count = length // SECTOR_SIZE

    def readblocks(self, block: int, buffer, offset: int = 0) -> None:
        """Reads len(buffer) bytes from `offset` in `block`."""
        check_within(self, block, offset, len(buffer))
        self._flash.readblocks(block, buffer, offset)

    def writeblocks(self, block: int, buffer, offset: int = 0) -> None:
        """Programs whole pages; raises DeviceFailed for anything else."""
        check_program(self, block, offset, len(buffer))
        self._flash.writeblocks(block, buffer, offset)

    def ioctl(self, operation: int, argument: int) -> int | None:
        """The protocol's ioctl: sync, block count, block size, block erase."""
        if operation == IOCTL_BLOCK_ERASE:
            check_within(self, argument, 0, 0)
        if operation in (IOCTL_SYNC, IOCTL_BLOCK_COUNT, IOCTL_BLOCK_SIZE, IOCTL_BLOCK_ERASE):
            return self._flash.ioctl(operation, argument)
        return 0
