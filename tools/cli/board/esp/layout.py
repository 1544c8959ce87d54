"""Where everything belongs on an ESP32's flash: the board's own partition table where it fits, or else a new one."""

from collections.abc import Iterable
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

from device.config import Config
from flash_store.devices.esp32 import SECTOR_SIZE, SUBTYPE_UNDEFINED
from tools.cli.board.errors import Refused
from tools.cli.board.esp.firmware import Firmware, size_text
from tools.cli.board.esp.loader import Chip, Piece
from tools.cli.device.partitions import FILES, LABEL, PartitionError, add_files, add_store

MAGIC = PartitionDefinition.MAGIC_BYTES
ERASED = b"\xff\xff"  # where a write of the table was cut
SPI = "spi:"


@dataclass(frozen=True)
class Layout:
    """Where the parts are that `holdfast flash` writes.

    Attributes:
        table: the partition table, a whole sector; None where the board's own stays.
        files: the file system.
        store: the store; None for one on a chip of its own.
    """

    table: bytes | None
    files: range
    store: range | None

    def table_pieces(self) -> list[Piece]:
        return [] if self.table is None else [(PARTITION_TABLE_OFFSET, self.table)]


def parse_table(sector: bytes) -> PartitionTable | None:
    """The partition table in this sector, None if none can be read there."""
    try:
        return PartitionTable.from_binary(sector[:MAX_PARTITION_LENGTH]) if sector[:2] == MAGIC else None
    except (InputError, UnicodeDecodeError):
        return None


def is_torn(sector: bytes) -> bool:
    """Whether a sector without a readable table may come from a write that was cut, and not from another system."""
    return sector[:2] in (MAGIC, ERASED)


def choose_layout(chip: Chip, firmware: Firmware | None, table: PartitionTable | None, config: Config) -> Layout:
    """Decides where everything belongs.

    Args:
        firmware: the MicroPython that is written, None where the board's own stays.
        table: the board's own.

    Raises:
        Refused: the firmware is for another or a larger chip, or there is no room.
    """
    if firmware is not None:
        _check_chip(chip, firmware)
    size = None if config.flash_path.startswith(SPI) else config.sector_count * SECTOR_SIZE
    if table is not None and _fits(table, chip, firmware, config.flash_path, size):
        return _layout(None, table, config.flash_path, size)
    if firmware is None and table is None:
        raise Refused("the board has no partition table: give MicroPython's .bin file with --micropython")
    basis = firmware.table if firmware is not None else table
    flash_size = firmware.flash_size if firmware is not None else chip.flash_size
    where = str(firmware.path) if firmware is not None else "the board's partition table"
    assert basis is not None
    if (
        firmware is None
        and size is not None
        and basis.find_by_name(LABEL)
        and not basis.find_by_name(config.flash_path)
    ):
        raise Refused(
            f"flash.path is {config.flash_path}, and the board's table has partition {LABEL} for the store: take its "
            "name, or give MicroPython's .bin file with --micropython for a new table"
        )
    made = PartitionTable.from_binary(basis.to_binary())
    try:
        add_files(made, flash_size)
        if size is not None and _store_in(made, config.flash_path, size) is None:
            add_store(made, size)
            made.find_by_name(LABEL).name = config.flash_path
    except PartitionError as error:
        raise Refused(f"{where}: {error}") from error
    _check_end(made, chip, where)
    binary = made.to_binary()[:MAX_PARTITION_LENGTH].ljust(SECTOR_SIZE, b"\xff")
    return _layout(binary, made, config.flash_path, size)


def _check_chip(chip: Chip, firmware: Firmware) -> None:
    if firmware.title != chip.title:
        raise Refused(f"{firmware.path} is for {firmware.title}, and the board has an {chip.title}")
    if firmware.flash_size > chip.flash_size:
        raise Refused(
            f"{firmware.path} is for a flash of {size_text(firmware.flash_size)}, and the board's has "
            f"{size_text(chip.flash_size)}: take a firmware for a flash of this size"
        )


def _check_end(table: Iterable[PartitionDefinition], chip: Chip, where: str) -> None:
    for one in table:
        if one.offset + one.size > chip.flash_size:
            raise Refused(
                f"{where}: partition {one.name} ends at 0x{one.offset + one.size:x}, and the board's flash has "
                f"{size_text(chip.flash_size)}"
            )


def _fits(table: PartitionTable, chip: Chip, firmware: Firmware | None, label: str, store_bytes: int | None) -> bool:
    if files_in(table) is None or any(one.offset + one.size > chip.flash_size for one in table):
        return False
    if store_bytes is not None:
        found = table.find_by_name(label)
        if found is None or (found.type, found.subtype, found.size) != (DATA_TYPE, SUBTYPE_UNDEFINED, store_bytes):
            return False
    if firmware is None:
        return True
    is_within = all(one.offset + one.size <= firmware.flash_size for one in table)
    return is_within and any(
        one.type == APP_TYPE and one.offset == firmware.program and one.size >= firmware.program_bytes for one in table
    )


def _store_in(table: PartitionTable, label: str, size: int) -> PartitionDefinition | None:
    """A firmware's own partition for the store. Raises Refused if it is another than the configuration needs."""
    found = table.find_by_name(label)
    if found is None:
        return None
    if (found.type, found.subtype) != (DATA_TYPE, SUBTYPE_UNDEFINED):
        raise Refused(f"flash.path is {label}, which is a partition for something else")
    if found.size != size:
        raise Refused(
            f"flash.sector_count is {size // SECTOR_SIZE}, expected {found.size // SECTOR_SIZE}: partition {label} has "
            f"{size_text(found.size)}"
        )
    return found


def files_in(table: Iterable[PartitionDefinition]) -> PartitionDefinition | None:
    """MicroPython's file system."""
    return next((one for one in table if one.name in FILES and one.type == DATA_TYPE), None)


def _layout(binary: bytes | None, table: PartitionTable, label: str, store_bytes: int | None) -> Layout:
    files = files_in(table)
    assert files is not None
    store = None if store_bytes is None else table.find_by_name(label)
    return Layout(binary, _range(files), None if store is None else _range(store))


def _range(one: PartitionDefinition) -> range:
    return range(one.offset, one.offset + one.size)
