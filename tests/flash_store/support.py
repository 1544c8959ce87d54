"""A formatted flash, and the store mounted on it."""

from typing import Any

from flash_store.log import Log
from tools.lab.sim.nor import NorFlash


def formatted(granule: int = 16, sector_size: int = 512, sector_count: int = 8) -> NorFlash:
    flash = NorFlash(sector_size, sector_count, granule)
    Log.format(flash, 1, granule)
    return flash


def mounted(granule: int = 16, sector_size: int = 512, sector_count: int = 8) -> tuple[NorFlash, Log]:
    flash = formatted(granule, sector_size, sector_count)
    return flash, Log(flash)


def ids(log: Log) -> list[int]:
    return [message[0] for message in log.messages()]


def payloads(log: Log) -> list[bytes]:
    return [bytes(message[4]) for message in log.messages()]


def read(flash: Any, block: int, offset: int, length: int) -> bytes:
    buffer = bytearray(length)
    flash.readblocks(block, buffer, offset)
    return bytes(buffer)
