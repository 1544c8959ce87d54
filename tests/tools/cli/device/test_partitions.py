"""``holdfast device partitions``: the table that a board's firmware gets, with room for the store."""

import subprocess
import sys
from pathlib import Path

import pytest
from esp_idf_defs.partitions import PartitionTable

from tools.cli.paths import source_root

MICROPYTHON = """\
nvs,      data, nvs,     0x9000,  0x6000,
phy_init, data, phy,     0xf000,  0x1000,
factory,  app,  factory, 0x10000, 0x1F0000,
vfs,      data, fat,     0x200000, 0x200000,
"""  # ports/esp32/partitions-4MiB.csv


def firmware(folder: Path, table: str = MICROPYTHON, begin: int = 0x1000) -> Path:
    """A firmware's file as far as it matters here: it begins at this place of the chip, with the table at 0x8000."""
    path = folder / "ESP32_GENERIC.bin"
    path.write_bytes(b"\xe9" + bytes(0x8000 - begin - 1) + PartitionTable.from_csv(table).to_binary() + bytes(8192))
    return path


def partitions(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.cli.main", "device", "partitions", *options]
    return subprocess.run(command, cwd=source_root(), capture_output=True, text=True)


@pytest.mark.parametrize("begin", [0x0, 0x1000, 0x2000])
def test_store_gets_its_room_from_the_end_of_the_file_system(begin: int, tmp_path: Path) -> None:
    out = tmp_path / "partitions.bin"
    done = partitions(tmp_path, str(firmware(tmp_path, begin=begin)), "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert f"esptool write-flash 0x8000 {out}" in done.stdout
    made = PartitionTable.from_binary(out.read_bytes())
    rows = {one.name: (one.type, one.subtype, one.offset, one.size) for one in made}
    assert rows["vfs"] == (1, 0x81, 0x200000, 0x1C0000)
    assert rows["holdfast"] == (1, 0x06, 0x3C0000, 64 * 4096)
    assert list(rows) == ["nvs", "phy_init", "factory", "vfs", "holdfast"]
    assert len(out.read_bytes()) == 0xC00  # what the bootloader reads


@pytest.mark.parametrize(
    ("table", "options", "why"),
    [
        (MICROPYTHON.replace("vfs,", "files,"), (), "no partition vfs"),
        (MICROPYTHON.replace("vfs,", "holdfast,"), (), "a partition holdfast already"),
        (MICROPYTHON, ("--sectors", "500"), "the file system has 2048 KiB: the store can have 496 sectors at most"),
    ],
)
def test_table_without_room_is_refused_and_nothing_is_written(
    table: str, options: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    out = tmp_path / "partitions.bin"
    done = partitions(tmp_path, str(firmware(tmp_path, table)), "--out", str(out), *options)
    assert done.returncode == 2
    assert why in done.stderr
    assert not out.exists()


def test_file_that_is_no_firmware_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a firmware")
    done = partitions(tmp_path, str(path))
    assert done.returncode == 2
    assert "has no partition table, expected a .bin file of MicroPython for an ESP32" in done.stderr
    broken = firmware(tmp_path)
    content = bytearray(broken.read_bytes())
    content[0x7004] ^= 1
    broken.write_bytes(content)
    assert "partition table at 0x7000 cannot be read" in partitions(tmp_path, str(broken)).stderr


def test_a_firmware_that_cannot_be_read_is_named_with_the_reason_alone(tmp_path: Path) -> None:
    done = partitions(tmp_path, str(tmp_path / "absent"))
    expected = f"holdfast device partitions: {tmp_path}/absent: No such file or directory\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)
