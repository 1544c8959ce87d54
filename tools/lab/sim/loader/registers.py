"""The registers of a simulated chip, as far as a loader's READ_REG and WRITE_REG reach them."""

from collections.abc import Callable

from tools.lab.sim.loader.chips import Chip
from tools.lab.sim.loader.flash_file import FlashFile

SPI_USER = 1 << 18  # starts the command in the register `user_2`
WATCHDOG_ON = 1 << 31
READ_ID, READ_SFDP = 0x9F, 0x5A
SFDP = 0x5044_4653  # "SFDP", which a flash chip's table of parameters begins with


class Registers:
    """The words at all addresses; what was not written is what `chip` has after a reset.

    Args:
        on_watchdog: called when a program starts the watchdog, which resets the chip soon.
    """

    def __init__(self, chip: Chip, flash: FlashFile, on_watchdog: Callable[[], None]) -> None:
        self._chip, self._flash, self._on_watchdog = chip, flash, on_watchdog
        self._words = dict(chip.registers)

    def read(self, address: int) -> int:
        return self._words.get(address, 0)

    def write(self, address: int, value: int, mask: int) -> None:
        """Replaces the bits of `mask`."""
        self._words[address] = self.read(address) & ~mask | value & mask
        if address == self._chip.spi.command and value & SPI_USER:
            self._words[address] &= ~SPI_USER  # it is done at once
            self._words[self._chip.spi.data] = self._answer(self.read(self._chip.spi.user_2) & 0xFF)
        elif address == self._chip.watchdog and value & WATCHDOG_ON:
            self._on_watchdog()

    def _answer(self, command: int) -> int:
        """What the flash chip says to a command of its own."""
        if command == READ_ID:
            return self._flash.jedec_id
        if command == READ_SFDP and not self.read(self._chip.spi.address):
            return SFDP
        return 0
