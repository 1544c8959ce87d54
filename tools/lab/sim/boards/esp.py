"""`esp` of a simulated board: reads flash without decryption."""

import _chip
from esp32 import FLASH, FLASH_SIZE


def flash_read(offset: int, buffer: bytearray) -> None:
    buffer[:] = FLASH[offset : offset + len(buffer)]


def flash_size() -> int:
    """The bytes of the flash chip, as the file `flash_bytes` in the chip's folder tells them."""
    return int(_chip.read("flash_bytes") or FLASH_SIZE)
