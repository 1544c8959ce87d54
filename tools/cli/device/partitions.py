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
from flash_store.log import MIN_SECTORS
from tools.cli.failure import failing_on
from tools.cli.output import write_whole

FILES = "vfs"  # MicroPython's file system
FILES_LEAST_BYTES = 64 * 1024
LABEL = "holdfast"
BEFORE_TABLE = (0x0, 0x1000, 0x2000)  # where on the chip a firmware file begins, by the kind of ESP32


class PartitionError(Exception):
    """A firmware has no partition table that the store could be added to; the text says why."""


def partitions(
    firmware: Annotated[
        Path, typer.Argument(metavar="FIRMWARE", help="MicroPython's .bin file for the board, as downloaded.")
    ],
    sectors: Annotated[
        int, typer.Option(min=MIN_SECTORS, max=SECTORS_MAX, help="The store's size in sectors of 4096 bytes.")
    ] = SECTORS,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("partitions.bin"),
) -> None:
    """Write the partition table that an ESP32 needs: its firmware's, with a partition for the store."""
    with failing_on(PartitionError, command="device partitions"):
        try:
            table = add_store(read_table(firmware), sectors * SECTOR_SIZE)
            write_whole(out, table.to_binary())
        except OSError as error:
            raise PartitionError(f"{error.filename}: {error.strerror}") from error
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


def add_store(table: PartitionTable, size: int) -> PartitionTable:
    """Takes the store's bytes from the end of the file system. Raises PartitionError where that cannot be done."""
    if table.find_by_name(LABEL) is not None:
        raise PartitionError(f"the table has a partition {LABEL} already")
    files = table.find_by_name(FILES)
    if files is None:
        raise PartitionError(f"the table has no partition {FILES}, MicroPython's file system")
    if files.size - size < FILES_LEAST_BYTES:
        least = (files.size - FILES_LEAST_BYTES) // SECTOR_SIZE
        raise PartitionError(
            f"the file system has {files.size // 1024} KiB: the store can have {least} sectors at most"
        )
    files.size -= size
    store = PartitionDefinition()
    store.name, store.type, store.subtype = LABEL, DATA_TYPE, SUBTYPE_UNDEFINED
    store.offset, store.size = files.offset + files.size, size
    table.append(store)
    table.sort(key=lambda one: one.offset)
    try:
        table.verify(PARTITION_TABLE_OFFSET)
    except InputError as error:
        raise PartitionError(f"the firmware's table cannot be used: {error}") from error
    return table
