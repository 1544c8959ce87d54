"""An external SPI NOR flash chip: Winbond's W25Q family and other chips with the same JEDEC commands.

One program command writes to one page only: beyond the page's end it would go on at the page's start. A chip of more
than 16 MiB gets commands with four address bytes. The chip's four-byte mode is not used, because a power dip at the
chip alone would end this mode without a sign.
"""

from flash_store.block_device import IOCTL_BLOCK_COUNT, IOCTL_BLOCK_ERASE, IOCTL_BLOCK_SIZE
from flash_store.devices.bounds import check_program, check_within
from flash_store.errors import DeviceFailed

SECTOR_SIZE = 4096
PAGE_SIZE = 256
GRANULE = 16

JEDEC_ID = 0x9F
READ_STATUS = 0x05
WRITE_ENABLE = 0x06
# Each command twice: with three address bytes, and with four.
READ = (0x03, 0x13)
PROGRAM = (0x02, 0x12)
ERASE = (0x20, 0x21)
THREE_BYTES_REACH = 1 << 24

BUSY = 0x01  # bits of the status register
WRITE_ENABLED = 0x02
NO_ANSWER = 0xFF  # the status if no chip answers

# The longest waits are five times the longest page program (3 ms) and sector erase (400 ms) of a W25Q.
PROGRAM_MAX_US = 15_000
ERASE_MAX_US = 2_000_000
PROGRAM_POLL_US = 100
ERASE_POLL_US = 1_000


class SpiNor:
    """Sectors of a chip on an SPI bus.

    Args:
        spi: a `machine.SPI` in mode 0 or 3.
        cs: the chip-select `machine.Pin`, an output; low selects.
        wait_us: a function that waits for a number of microseconds, such as `time.sleep_us`.
        first_sector: where the store begins, in sectors of 4096 bytes.
        sector_count: how many sectors the store has; None for all to the chip's end.

    Raises DeviceFailed if no chip answers, if its size is unknown, or if the sectors are not on the chip.
    """

    granule = GRANULE
    sector_size = SECTOR_SIZE

    def __init__(self, spi, cs, wait_us, first_sector: int = 0, sector_count: int | None = None) -> None:
        self._spi = spi
        self._cs = cs
        self._wait_us = wait_us
        self._status = bytearray(1)
        cs(1)
        if self._read_status() != NO_ANSWER:  # the chip may still erase after a reset of the board
            self._wait_ready(ERASE_MAX_US, ERASE_POLL_US, "an operation from before the reset")
        self.jedec_id = self._read_id()
        self.chip_size = capacity(self.jedec_id)
        self._is_wide = self.chip_size > THREE_BYTES_REACH
        self._header = bytearray(5 if self._is_wide else 4)
        present = self.chip_size // SECTOR_SIZE
        self._first_sector = first_sector
        self.sector_count = present - first_sector if sector_count is None else sector_count
        if first_sector < 0 or self.sector_count < 1 or first_sector + self.sector_count > present:
            raise DeviceFailed(f"{self.sector_count} sectors from {first_sector} are not on a chip of {present}")

    def readblocks(self, block: int, buffer, offset: int = 0) -> None:
        """Reads len(buffer) bytes from `offset` in `block`."""
        check_within(self, block, offset, len(buffer))
        self._address(READ, block, offset)
        self._transfer(self._header, into=buffer)

    def writeblocks(self, block: int, buffer, offset: int = 0) -> None:
        """Programs whole granules; raises DeviceFailed if the chip refuses or does not end in time."""
        check_program(self, block, offset, len(buffer))
        whole = memoryview(buffer)
        at = 0
        while at < len(buffer):
            size = min(PAGE_SIZE - (offset + at) % PAGE_SIZE, len(buffer) - at)
            self._change(PROGRAM, block, offset + at, whole[at : at + size])
            at += size

    def ioctl(self, operation: int, argument: int) -> int | None:
        """The protocol's ioctl: block count, block size, block erase; a program needs no sync."""
        if operation == IOCTL_BLOCK_COUNT:
            return self.sector_count
        if operation == IOCTL_BLOCK_SIZE:
            return SECTOR_SIZE
        if operation == IOCTL_BLOCK_ERASE:
            check_within(self, argument, 0, 0)
            self._change(ERASE, argument, 0)
        return 0

    def _change(self, command: tuple, block: int, offset: int, content: bytes | memoryview = b"") -> None:
        """Programs or erases, and waits until the chip has ended the command."""
        what = f"{'erase' if command is ERASE else 'program'} in sector {block} at {offset}"
        self._transfer(bytes((WRITE_ENABLE,)))
        if not self._read_status() & WRITE_ENABLED:
            raise DeviceFailed(f"{what}: the chip ignores write enable, its status is 0x{self._status[0]:02x}")
        self._address(command, block, offset)
        self._transfer(self._header, content)
        if command is ERASE:
            self._wait_ready(ERASE_MAX_US, ERASE_POLL_US, what)
        else:
            self._wait_ready(PROGRAM_MAX_US, PROGRAM_POLL_US, what)
        if self._status[0] & WRITE_ENABLED:  # a program or an erase resets this bit
            raise DeviceFailed(f"{what}: write-protected, the chip's status is 0x{self._status[0]:02x}")

    def _wait_ready(self, longest_us: int, poll_us: int, what: str) -> None:
        for _ in range(longest_us // poll_us):
            if not self._read_status() & BUSY:
                return
            self._wait_us(poll_us)
        if self._read_status() & BUSY:
            raise DeviceFailed(f"{what}: still busy after {longest_us // 1000} ms")

    def _read_status(self) -> int:
        self._transfer(bytes((READ_STATUS,)), into=self._status)
        return self._status[0]

    def _read_id(self) -> bytes:
        found = bytearray(3)
        self._transfer(bytes((JEDEC_ID,)), into=found)
        return bytes(found)

    def _address(self, command: tuple, block: int, offset: int) -> None:
        """Sets the header to a command and its address."""
        address = (self._first_sector + block) * SECTOR_SIZE + offset
        self._header[0] = command[self._is_wide]
        for at in range(len(self._header) - 1, 0, -1):
            self._header[at] = address & 0xFF
            address >>= 8

    def _transfer(self, header, content: bytes | memoryview = b"", into=None) -> None:
        """Selects the chip, sends a command, and reads the answer if `into` is given."""
        self._cs(0)
        try:
            self._spi.write(header)
            if content:
                self._spi.write(content)
            if into is not None:
                self._spi.readinto(into)
        finally:
            self._cs(1)


def capacity(jedec_id: bytes) -> int:
    """Returns the size in bytes of the chip with this JEDEC ID. Raises DeviceFailed if the ID gives no size."""
    if jedec_id in (b"\x00\x00\x00", b"\xff\xff\xff"):
        raise DeviceFailed(f"no flash chip answers: its JEDEC ID reads {jedec_id.hex()}")
    code = jedec_id[2]
    if 0x10 <= code <= 0x19:
        return 1 << code
    if 0x20 <= code <= 0x22:  # the code after 0x19 (32 MiB) is 0x20
        return 1 << code - 6
    raise DeviceFailed(f"the JEDEC ID {jedec_id.hex()} does not give the size of the chip")
