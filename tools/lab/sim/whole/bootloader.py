"""How a simulated ESP32 starts from its flash: bootloader, partition table, program (ESP-IDF, "Bootloader").

It starts the program of type `factory`, or else the first that updates could have written; it does not read `otadata`.
"""

from dataclasses import dataclass

from esp_idf_defs.partitions import (
    APP_TYPE,
    DATA_TYPE,
    MAX_PARTITION_LENGTH,
    PARTITION_TABLE_OFFSET,
    InputError,
    PartitionDefinition,
    PartitionTable,
)

from tools.lab.sim.loader.chips import Chip
from tools.lab.sim.loader.flash_file import FlashFile
from tools.lab.sim.whole.image import BadImage, Image, check_image

BOOTLOADER_BYTES = 0x7000
FACTORY, FIRST_UPDATE = 0x00, 0x10
SUBTYPE_FAT = 0x81
FILES = ("vfs", "ffat")
BAD_TABLE = "E (43) boot: Failed to verify partition table\r\nload partition table error!"


class NoStart(Exception):
    """Nothing on the flash can be started; the text is what the board prints."""


@dataclass(frozen=True)
class Started:
    """A program that was found and checked, and the partitions that it sees."""

    program: Image
    partitions: list[PartitionDefinition]


def start(flash: FlashFile, chip: Chip) -> Started:
    """Finds the program that the chip starts. Raises NoStart."""
    try:
        check_image(flash.read(chip.bootloader_at, BOOTLOADER_BYTES), chip.image_id)
    except BadImage as error:
        raise NoStart(str(error)) from error
    table = _read_table(flash)
    program = min(
        (one for one in table if one.type == APP_TYPE and one.subtype in (FACTORY, FIRST_UPDATE)),
        key=lambda one: int(one.subtype),
        default=None,
    )
    if program is None:
        raise NoStart("E (61) boot: No bootable app partitions in the partition table")
    try:
        image = check_image(flash.read(program.offset, program.size), chip.image_id)
    except BadImage as error:
        raise NoStart(f"E (61) esp_image: {error}\r\nE (66) boot: Factory app partition is not bootable") from error
    return Started(image, _with_files(list(table), flash.size))


def _read_table(flash: FlashFile) -> PartitionTable:
    try:
        table = PartitionTable.from_binary(flash.read(PARTITION_TABLE_OFFSET, MAX_PARTITION_LENGTH))
    except (InputError, UnicodeDecodeError) as error:
        raise NoStart(f"E (38) flash_parts: {error}\r\n{BAD_TABLE}") from error
    for one in table:
        if one.offset + one.size > flash.size:
            raise NoStart(
                f"E (38) flash_parts: partition {one.name} invalid - offset 0x{one.offset:x} size 0x{one.size:x} "
                f"exceeds flash chip size 0x{flash.size:x}\r\n{BAD_TABLE}"
            )
    return table


def _with_files(partitions: list[PartitionDefinition], flash_size: int) -> list[PartitionDefinition]:
    """Adds the partition of the file system that MicroPython makes itself since 1.26 (ports/esp32/main.c)."""
    end = max(one.offset + one.size for one in partitions)
    if any(one.name in FILES for one in partitions) or end >= flash_size:
        return partitions
    made = PartitionDefinition()
    made.name, made.type, made.subtype, made.offset, made.size = FILES[0], DATA_TYPE, SUBTYPE_FAT, end, flash_size - end
    return [*partitions, made]
