"""The block device as the store uses it: it reads back every program, and returns False when one failed."""

from flash_store.block_device import IOCTL_BLOCK_COUNT, IOCTL_BLOCK_ERASE, IOCTL_BLOCK_SIZE
from flash_store.devices.stm32 import refuse_caching
from flash_store.errors import DeviceFailed

WINDOW_SIZE = 64  # bytes of the one buffer for read-back and checksums, so that a long record needs no more RAM


class Flash:
    """A block device with verified programs; sectors are its blocks."""

    def __init__(self, device) -> None:
        refuse_caching(device)
        self._device = device
        self.sector_count = device.ioctl(IOCTL_BLOCK_COUNT, 0)
        self.sector_size = device.ioctl(IOCTL_BLOCK_SIZE, 0)
        self._window = bytearray(WINDOW_SIZE)

    def read(self, sector: int, offset: int, length: int) -> bytearray:
        """Reads `length` bytes of a sector. Raises DeviceFailed."""
        buffer = bytearray(length)
        self._read_into(sector, offset, buffer)
        return buffer

    def read_if_whole(self, sector: int, offset: int, length: int) -> bytearray | None:
        """As `read`, but returns None if the device cannot read the bytes, for example after an ECC error."""
        try:
            return self.read(sector, offset, length)
        except DeviceFailed:
            return None

    def windows(self, sector: int, offset: int, length: int):
        """Yields `length` bytes in pieces; each piece is valid only until the next one is taken."""
        end = offset + length
        whole = memoryview(self._window)
        while offset < end:
            piece = whole[: min(WINDOW_SIZE, end - offset)]
            self._read_into(sector, offset, piece)
            yield piece
            offset += len(piece)

    def is_blank(self, sector: int, offset: int, length: int) -> bool:
        """Returns whether all these bytes can be read and are erased (0xFF)."""
        try:
            return all(bytes(piece) == b"\xff" * len(piece) for piece in self.windows(sector, offset, length))
        except DeviceFailed:
            return False

    def program(self, sector: int, offset: int, record: bytes | bytearray) -> bool:
        """Programs whole granules; returns False if the device refuses or reads back something else."""
        try:
            if self._device.writeblocks(sector, record, offset):  # the protocol allows an error number as the result
                return False
            at = 0
            for piece in self.windows(sector, offset, len(record)):
                if piece != record[at : at + len(piece)]:
                    return False
                at += len(piece)
        except (OSError, DeviceFailed):
            return False
        return True

    def erase(self, sector: int) -> bool:
        """Erases a sector; returns False if the device refuses or the sector is not blank afterwards."""
        try:
            if self._device.ioctl(IOCTL_BLOCK_ERASE, sector):
                return False
            return self.is_blank(sector, 0, self.sector_size)
        except (OSError, DeviceFailed):
            return False

    def _read_into(self, sector: int, offset: int, buffer) -> None:
        try:
            failed = self._device.readblocks(sector, buffer, offset)
        except OSError as error:
            raise DeviceFailed(f"sector {sector} cannot be read at {offset}: {error}") from error
        if failed:
            raise DeviceFailed(f"sector {sector} cannot be read at {offset}: error {failed}")
