"""The chips that the simulation knows, as data: what esptool reads to tell them apart, and where their registers are.

Addresses and values are those of the technical reference manuals (chapters "eFuse Controller", "SPI Controller",
"Low-Power Management") of the chips.
"""

from dataclasses import dataclass, field, replace

MAGIC_REGISTER = 0x4000_1000  # a word of the ROM that differs from chip to chip
ESP32_MAGIC = 0x00F0_1D83
XTENSA, RISC_V = 10, 11
MAC = bytes.fromhex("24 6f 28 aa bb cc")


@dataclass(frozen=True)
class SpiRegisters:
    """Where the flash's SPI controller has the registers by which any command goes to the flash chip."""

    command: int
    address: int
    user_2: int
    data: int


@dataclass(frozen=True)
class Chip:
    """One kind of ESP32.

    Attributes:
        name: what esptool's `--chip` calls it, and `esptool` prints it as `title`.
        image_id: the chip's number in the header of an image ("App Image Format").
        tells_security: whether the ROM knows GET_SECURITY_INFO, which tells `image_id`.
        bootloader_at: where on the flash the ROM looks for the bootloader.
        registers: what the registers hold after a reset; all others hold 0.
        architecture: its number in .mpy files (MicroPython's py/persistentcode.h).
        watchdog: the register that starts the watchdog of the low-power part; None where esptool does not use it.
        mac: its MAC address, which `registers` has too.
    """

    name: str
    title: str
    image_id: int
    tells_security: bool
    bootloader_at: int
    spi: SpiRegisters
    registers: dict[int, int] = field(hash=False)
    architecture: int
    watchdog: int | None = None
    mac: bytes = MAC


def _mac_words(mac: bytes) -> tuple[int, int]:
    """The address as the eFuses have it: the last four bytes, and the first two."""
    return int.from_bytes(mac[2:], "big"), int.from_bytes(mac[:2], "big")


def with_mac(chip: Chip, mac: bytes) -> Chip:
    """Returns the same chip with another MAC address."""
    words = dict(zip(_mac_words(chip.mac), _mac_words(mac), strict=True))
    return replace(chip, mac=mac, registers={at: words.get(word, word) for at, word in chip.registers.items()})


_LOW, _HIGH = _mac_words(MAC)
_SPI = SpiRegisters(0x6000_2000, 0x6000_2004, 0x6000_2020, 0x6000_2058)

ESP32 = Chip(
    name="esp32",
    title="ESP32",
    image_id=0,
    tells_security=False,
    bootloader_at=0x1000,
    spi=SpiRegisters(0x3FF4_2000, 0x3FF4_2004, 0x3FF4_2024, 0x3FF4_2080),
    registers={
        MAGIC_REGISTER: ESP32_MAGIC,
        0x3FF5_A004: _LOW,
        0x3FF5_A008: _HIGH,
        0x3FF5_A00C: 1 << 15 | 1 << 13 | 1 << 9,  # revision 3, 240 MHz, package D0WD
        0x3FF5_A014: 1 << 20,
        0x3FF6_607C: 1 << 31,
        0x3FF5_A010: 128,  # the 8 MHz clock, and what the ROM measured with it: together a crystal of 40 MHz
        0x3FF5_F06C: 800 << 7,
        0x3FF4_0014: 347,  # the UART's divider at 115,200 baud
    },
    architecture=XTENSA,
)
ESP32S3 = Chip(
    name="esp32s3",
    title="ESP32-S3",
    image_id=9,
    tells_security=True,
    bootloader_at=0x0,
    spi=_SPI,
    registers={0x6000_7044: _LOW, 0x6000_7048: _HIGH, 0x6000_7050: 2 << 18},  # version 0.2
    architecture=XTENSA,
    watchdog=0x6000_8098,
)
ESP32C3 = Chip(
    name="esp32c3",
    title="ESP32-C3",
    image_id=5,
    tells_security=True,
    bootloader_at=0x0,
    spi=_SPI,
    registers={0x6000_8844: _LOW, 0x6000_8848: _HIGH, 0x6000_8850: 4 << 18},  # version 0.4
    architecture=RISC_V,
    watchdog=0x6000_8090,
)
CHIPS = {chip.name: chip for chip in (ESP32, ESP32S3, ESP32C3)}
