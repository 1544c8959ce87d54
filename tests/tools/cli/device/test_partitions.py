"""``holdfast device partitions``: the table that a board's firmware gets, with room for the store."""

from pathlib import Path

import pytest
from esp_idf_defs.partitions import PartitionTable
from typer.testing import Result

from tests.support.command import holdfast

# MicroPython's ports/esp32/partitions-*.csv. Up to 1.25 they have the file system; since 1.26 (pull request 17337) the
# firmware makes it at each start, from the last partition to the end of the chip.
V1_25 = """\
nvs,      data, nvs,     0x9000,  0x6000,
phy_init, data, phy,     0xf000,  0x1000,
factory,  app,  factory, 0x10000, 0x1F0000,
vfs,      data, fat,     0x200000, 0x200000,
"""  # partitions-4MiB.csv
V1_25_8_MIB_OF_UF2 = V1_25.replace("vfs,", "ffat,").replace("0x200000, 0x200000", "0x200000, 0x600000")
V1_26 = """\
nvs,      data, nvs,     0x9000,  0x6000,
phy_init, data, phy,     0xf000,  0x1000,
factory,  app,  factory, 0x10000, 0x1F0000,
"""  # partitions-4MiBplus.csv
NEXT = V1_26.replace("0x1F0000", "0x210000")  # the same in its next version
ROMFS = """\
nvs,      data, nvs,     0x9000,  0x6000,
phy_init, data, phy,     0xf000,  0x1000,
factory,  app,  factory, 0x10000, 0x1D0000,
romfs,    data, 0x8f,    0x1E0000, 0x20000,
"""  # partitions-4MiB-romfs.csv
OTA = """\
nvs,      data, nvs,     0x9000,   0x4000,
otadata,  data, ota,     0xd000,   0x2000,
phy_init, data, phy,     0xf000,   0x1000,
ota_0,    app,  ota_0,   0x10000,  0x180000,
ota_1,    app,  ota_1,   0x190000, 0x180000,
"""  # partitions-4MiB-ota.csv
MIB_4, MIB_8 = 0x20, 0x30  # the upper half of the header's fourth byte


def firmware(folder: Path, table: str = V1_25, begin: int = 0x1000, size: int = MIB_4) -> Path:
    """A firmware's file as far as it matters here: it begins at this place of the chip, with the table at 0x8000."""
    path = folder / "ESP32_GENERIC.bin"
    header = bytes([0xE9, 4, 2, size | 0xF])
    rest = bytes(0x8000 - begin - len(header)) + PartitionTable.from_csv(table).to_binary() + bytes(8192)
    path.write_bytes(header + rest)
    return path


def partitions(*options: str) -> Result:
    return holdfast("device", "partitions", *options)


@pytest.mark.parametrize("begin", [0x0, 0x1000, 0x2000])
def test_store_gets_its_room_from_the_end_of_the_file_system(begin: int, tmp_path: Path) -> None:
    out = tmp_path / "partitions.bin"
    done = partitions(str(firmware(tmp_path, begin=begin)), "--out", str(out))
    assert done.exit_code == 0, done.stderr
    assert f"esptool write-flash 0x8000 {out}" in done.stdout
    made = PartitionTable.from_binary(out.read_bytes())
    rows = {one.name: (one.type, one.subtype, one.offset, one.size) for one in made}
    assert rows["vfs"] == (1, 0x81, 0x200000, 0x1C0000)
    assert rows["holdfast"] == (1, 0x06, 0x3C0000, 64 * 4096)
    assert list(rows) == ["nvs", "phy_init", "factory", "vfs", "holdfast"]
    assert len(out.read_bytes()) == 0xC00  # what the bootloader reads


@pytest.mark.parametrize(
    ("table", "size", "options", "files", "store"),
    [
        (V1_25_8_MIB_OF_UF2, MIB_8, (), ("ffat", 0x200000, 0x5C0000), 0x7C0000),
        (V1_26, MIB_4, (), ("vfs", 0x200000, 0x1C0000), 0x3C0000),
        (V1_26, MIB_8, (), ("vfs", 0x200000, 0x5C0000), 0x7C0000),
        (V1_26, MIB_4, ("--flash-mb", "8"), ("vfs", 0x200000, 0x5C0000), 0x7C0000),
        (NEXT, MIB_4, (), ("vfs", 0x220000, 0x1A0000), 0x3C0000),
        (ROMFS, MIB_4, (), ("vfs", 0x200000, 0x1C0000), 0x3C0000),
        (OTA, MIB_4, (), ("vfs", 0x310000, 0xB0000), 0x3C0000),
    ],
    ids=["1.25 ffat", "1.26", "1.26 for 8 MiB", "1.26 told 8 MiB", "next", "romfs", "ota"],
)
def test_store_ends_with_the_chip_and_the_file_system_keeps_its_line(
    table: str, size: int, options: tuple[str, ...], files: tuple[str, int, int], store: int, tmp_path: Path
) -> None:
    out = tmp_path / "partitions.bin"
    done = partitions(str(firmware(tmp_path, table, size=size)), "--out", str(out), *options)
    assert done.exit_code == 0, done.stderr
    *_, last_but_one, last = PartitionTable.from_binary(out.read_bytes())
    assert (last_but_one.name, last_but_one.offset, last_but_one.size) == files
    assert (last_but_one.type, last_but_one.subtype) == (1, 0x81)
    assert (last.name, last.offset, last.size) == ("holdfast", store, 64 * 4096)


@pytest.mark.parametrize(
    ("table", "options", "why"),
    [
        (V1_25.replace("vfs,", "holdfast,"), (), "where the chip of 4 MiB ends"),
        (V1_26 + "holdfast, data, undefined, 0x200000, 0x40000,", (), "a partition holdfast already"),
        (V1_26, ("--flash-mb", "2"), "end at 0x200000, where the chip of 2 MiB ends"),
        (V1_25, ("--sectors", "500"), "the file system has 2048 KiB: the store can have 496 sectors at most"),
    ],
)
def test_table_without_room_is_refused_and_nothing_is_written(
    table: str, options: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    out = tmp_path / "partitions.bin"
    done = partitions(str(firmware(tmp_path, table)), "--out", str(out), *options)
    assert done.exit_code == 2
    assert why in done.stderr
    assert not out.exists()


def test_file_that_is_no_firmware_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a firmware")
    done = partitions(str(path))
    assert done.exit_code == 2
    assert "has no partition table, expected a .bin file of MicroPython for an ESP32" in done.stderr
    path.write_bytes(b"\0" + firmware(tmp_path, V1_26).read_bytes()[1:])
    assert "does not say the size of its chip: tell it with --flash-mb" in partitions(str(path)).stderr
    broken = firmware(tmp_path)
    content = bytearray(broken.read_bytes())
    content[0x7004] ^= 1
    broken.write_bytes(content)
    assert "partition table at 0x7000 cannot be read" in partitions(str(broken)).stderr


def test_a_firmware_that_cannot_be_read_is_named_with_the_reason_alone(tmp_path: Path) -> None:
    done = partitions(str(tmp_path / "absent"))
    expected = f"holdfast device partitions: {tmp_path}/absent: No such file or directory\n"
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", expected)
