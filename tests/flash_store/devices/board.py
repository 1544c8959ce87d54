"""Simulated boards with each kind of flash, also for MicroPython.

`tools/lab/sim/boards` must be first on the import path.
"""

from flash_store.devices.esp32 import Esp32Partition
from flash_store.devices.ram import RamFlash
from flash_store.devices.rp2 import Rp2Flash
from flash_store.devices.spi_nor import SpiNor
from tools.lab.sim.spi_nor import W25Q

SECTORS = 8
SIZE = SECTORS * 4096
SPI_ID, CS_PIN = 1, 13
SMALL_CHIP = b"\xef\x30\x10"  # 64 KiB


def ram() -> RamFlash:
    return RamFlash(4096, SECTORS)


def esp32() -> Esp32Partition:
    return _partition(False)


def esp32_encrypted() -> Esp32Partition:
    return _partition(True)


def _partition(is_encrypted: bool) -> Esp32Partition:
    from esp32 import set_table

    set_table(1 << 17, [(1, 2, 0x9000, 0x6000, "nvs", False), (1, 6, 0x10000, SIZE, "holdfast", is_encrypted)])
    return Esp32Partition("holdfast", SIZE)


def rp2() -> Rp2Flash:
    from rp2 import STORAGE

    STORAGE[:] = b"\xff" * len(STORAGE)
    return Rp2Flash(8 * 4096, SIZE)


def spi_nor() -> SpiNor:
    return wire(W25Q(SMALL_CHIP, 1 << 16))


def wire(chip: W25Q, first_sector: int = 2, sector_count: int | None = SECTORS) -> SpiNor:
    """The driver of a chip on a board of its own."""
    from machine import SPI, Pin, connect, disconnect_all

    disconnect_all()
    connect(chip, SPI_ID, CS_PIN)
    return SpiNor(SPI(SPI_ID, baudrate=8_000_000), Pin(CS_PIN, Pin.OUT), chip.wait_us, first_sector, sector_count)


KINDS: dict = {"ram": ram, "esp32": esp32, "esp32_encrypted": esp32_encrypted, "rp2": rp2, "spi_nor": spi_nor}
