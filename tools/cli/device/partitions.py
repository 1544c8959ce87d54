"""`holdfast device partitions`: an ESP32's partition table with room for the store."""

from pathlib import Path
from typing import Annotated

import typer
from esp_idf_defs.partitions import (
    DATA_TYPE,
    MAX_PARTITION_LENGTH,
    PARTITION_TABLE_OFFSET,
    InputError,
    PartitionDefinition,
    PartitionTable,
)

from device.config import SECTORS, SECTORS_MAX
from flash_store.devices.esp32 import SECTOR_SIZE, SUBTYPE_UNDEFINED
from flash_store.errors import MIN_SECTORS
from tools.cli.failure import failing_on
from tools.cli.output import write_whole

FILES = ("vfs", "ffat")  # the names of MicroPython's file system
SUBTYPE_FAT = 0x81
FILES_LEAST_BYTES = 64 * 1024
LABEL = "holdfast"
BEFORE_TABLE = (0x0, 0x1000, 0x2000)  # where on the chip a firmware file begins, by the kind of ESP32
IMAGE_MAGIC = 0xE9
SIZE_FIELD = 3  # in a firmware's first header: the chip's size is 1 MiB, doubled as often as the upper 4 bits say
MIB = 1024 * 1024


class PartitionError(Exception):
    """A firmware has no partition table that the store could be added to; the text says why."""


def partitions(
    firmware: Annotated[
        Path, typer.Argument(metavar="FIRMWARE", help="MicroPython's .bin file for the board, as downloaded.")
    ],
    sectors: Annotated[
        int, typer.Option(min=MIN_SECTORS, max=SECTORS_MAX, help="The store's size in sectors of 4096 bytes.")
    ] = SECTORS,
    flash_mb: Annotated[
        int | None, typer.Option(min=2, max=128, help="The chip's size in MiB.", show_default="what the firmware says")
    ] = None,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("partitions.bin"),
) -> None:
    """Write the partition table that an ESP32 needs: its firmware's, with a partition for the store."""
    with failing_on(PartitionError, OSError, command="device partitions"):
        table = read_table(firmware)
        add_files(table, flash_mb * MIB if flash_mb else read_flash_size(firmware))
        add_store(table, sectors * SECTOR_SIZE)
        write_whole(out, table.to_binary())
    for one in table:
        typer.echo(f"{one.name:12} at 0x{one.offset:06x} {one.size // 1024:6} KiB")
    typer.echo(
        f"{out}: write it before the board's first start: esptool write-flash 0x{PARTITION_TABLE_OFFSET:x} {out}"
    )


def read_table(firmware: Path) -> PartitionTable:
    """The partition table in a firmware's file. Raises OSError, PartitionError."""
    content = firmware.read_bytes()
    for begin in BEFORE_TABLE:
        at = PARTITION_TABLE_OFFSET - begin
        if content[at : at + 2] == PartitionDefinition.MAGIC_BYTES:
            try:
                return PartitionTable.from_binary(content[at : at + MAX_PARTITION_LENGTH])
            except (InputError, UnicodeDecodeError) as error:
                raise PartitionError(f"{firmware}: its partition table at 0x{at:x} cannot be read: {error}") from error
    raise PartitionError(f"{firmware} has no partition table, expected a .bin file of MicroPython for an ESP32")


def read_flash_size(firmware: Path) -> int:
    """The bytes of the chip that a firmware is built for; its bootloader refuses a partition behind them.

    From the header of its first image (ESP-IDF, "App Image Format"). Raises OSError, PartitionError.
    """
    header = firmware.read_bytes()[: SIZE_FIELD + 1]
    if len(header) <= SIZE_FIELD or header[0] != IMAGE_MAGIC:
        raise PartitionError(f"{firmware} does not say the size of its chip: tell it with --flash-mb")
    return MIB << (header[SIZE_FIELD] >> 4)


def add_files(table: PartitionTable, flash_size: int) -> None:
    """Adds MicroPython's file system if the table has none: from the last partition to the end of the chip.

    Since version 1.26 the firmware finds this place at each start (ports/esp32/main.c). It makes no file system where a
    partition reaches to the end of the chip, so the store needs the line. Raises PartitionError.
    """
    if any(table.find_by_name(name) is not None for name in FILES):
        return
    end = max((one.offset + one.size for one in table), default=0)
    if end >= flash_size:
        raise PartitionError(f"the table's partitions end at 0x{end:x}, where the chip of {flash_size // MIB} MiB ends")
    table.append(_partition(FILES[0], SUBTYPE_FAT, end, flash_size - end))


def add_store(table: PartitionTable, size: int) -> PartitionTable:
    """Takes the store's bytes from the end of the file system. Raises PartitionError where that cannot be done."""
    if table.find_by_name(LABEL) is not None:
        raise PartitionError(f"the table has a partition {LABEL} already")
    files = next(one for one in table if one.name in FILES)
    if files.size - size < FILES_LEAST_BYTES:
        least = (files.size - FILES_LEAST_BYTES) // SECTOR_SIZE
        raise PartitionError(
            f"the file system has {files.size // 1024} KiB: the store can have {least} sectors at most"
        )
    files.size -= size
    table.append(_partition(LABEL, SUBTYPE_UNDEFINED, files.offset + files.size, size))
    table.sort(key=lambda one: one.offset)
    try:
        table.verify(PARTITION_TABLE_OFFSET)
    except InputError as error:
        raise PartitionError(f"the firmware's table cannot be used: {error}") from error
    return table


def _partition(name: str, subtype: int, offset: int, size: int) -> PartitionDefinition:
    made = PartitionDefinition()
    made.name, made.type, made.subtype, made.offset, made.size = name, DATA_TYPE, subtype, offset, size
    return made
