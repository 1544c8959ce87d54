"""NOR flash simulated in RAM, to try the store without wear on a chip. A reset loses its content."""

from flash_store.block_device import IOCTL_BLOCK_COUNT, IOCTL_BLOCK_ERASE, IOCTL_BLOCK_SIZE
from flash_store.devices.bounds import check_program, check_within
from flash_store.errors import DeviceFailed


class RamFlash:
    """`sector_count` sectors of `sector_size` bytes; a granule can be programmed once per erase of its sector."""

    def __init__(self, sector_size: int = 4096, sector_count: int = 8, granule: int = 16) -> None:
        self.sector_size = sector_size
        self.sector_count = sector_count
        self.granule = granule
        self._sectors = [bytearray(b"\xff" * sector_size) for _ in range(sector_count)]
        # One flag for each granule, because a granule programmed with all ones looks blank.
        self._programmed = [bytearray(sector_size // granule) for _ in range(sector_count)]

    def readblocks(self, block: int, buffer, offset: int = 0) -> None:
        """Reads len(buffer) bytes from `offset` in `block`."""
        check_within(self, block, offset, len(buffer))
        buffer[:] = self._sectors[block][offset : offset + len(buffer)]

    def writeblocks(self, block: int, buffer, offset: int = 0) -> None:
        """Programs whole granules; raises DeviceFailed if one was programmed since its last erase."""
        check_program(self, block, offset, len(buffer))
        programmed = self._programmed[block]
        granules = range(offset // self.granule, (offset + len(buffer)) // self.granule)
        for number in granules:
            if programmed[number]:
                raise DeviceFailed(f"sector {block} at {number * self.granule} was programmed since its last erase")
        for number in granules:
            programmed[number] = 1
        self._sectors[block][offset : offset + len(buffer)] = buffer

    def ioctl(self, operation: int, argument: int) -> int | None:
        """The protocol's ioctl: block count, block size, block erase; other operations do nothing."""
        if operation == IOCTL_BLOCK_COUNT:
            return self.sector_count
        if operation == IOCTL_BLOCK_SIZE:
            return self.sector_size
        if operation == IOCTL_BLOCK_ERASE:
            check_within(self, argument, 0, 0)
            self._sectors[argument][:] = b"\xff" * self.sector_size
            self._programmed[argument] = bytearray(len(self._programmed[argument]))
        return 0
