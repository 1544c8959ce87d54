"""`esp` of a simulated board: reads flash without decryption."""

from esp32 import FLASH


def flash_read(offset: int, buffer: bytearray) -> None:
    buffer[:] = FLASH[offset : offset + len(buffer)]
