"""What an ESP32's partition table may hold, and what its flash encryption does to reading."""

import pytest

from flash_store.devices.esp32 import Esp32Partition
from flash_store.errors import DeviceFailed
from flash_store.log import Log
from tests.flash_store.devices.board import SIZE, esp32, esp32_encrypted

TABLE = [
    (0, 0x00, 0x10000, 0x8000, "factory", False),
    (1, 0x81, 0x18000, SIZE, "vfs", False),
    (1, 0x06, 0x20000, SIZE, "holdfast", False),
]


@pytest.mark.parametrize(
    ("label", "size", "reason"),
    [
        ("holdfst", SIZE, "the partition table has no partition holdfst"),
        ("factory", 0x8000, r"partition factory has type 0, subtype 0x00, expected data, undefined \(1, 0x06\)"),
        ("vfs", SIZE, r"partition vfs has type 1, subtype 0x81, expected data, undefined"),
        ("holdfast", SIZE * 2, f"partition holdfast has {SIZE} bytes, expected {SIZE * 2}"),
    ],
)
def test_another_partition_is_refused_and_left_alone(label: str, size: int, reason: str) -> None:
    from esp32 import FLASH, set_table

    set_table(1 << 18, TABLE)
    with pytest.raises(DeviceFailed, match=reason):
        Esp32Partition(label, size)
    assert FLASH == b"\xff" * (1 << 18)


def test_the_granule_follows_flash_encryption() -> None:
    assert esp32().granule == 16
    assert esp32_encrypted().granule == 32


def test_erased_flash_reads_as_erased_though_the_key_makes_noise_of_it() -> None:
    from esp32 import Partition

    flash = esp32_encrypted()
    through_the_key = bytearray(64)
    Partition("holdfast").readblocks(0, through_the_key, 0)
    assert b"\xff\xff\xff\xff" not in through_the_key
    flash.writeblocks(0, b"a" * 32, 32)
    found = bytearray(80)
    flash.readblocks(0, found, 8)
    assert found == b"\xff" * 24 + b"a" * 32 + b"\xff" * 24


def test_an_encrypted_store_shows_nothing_on_the_chip_and_survives_a_mount() -> None:
    from esp32 import FLASH

    flash = esp32_encrypted()
    Log.format(flash, 0x12345678, flash.granule)
    Log(flash).append("telemetry/garage", b"a secret reading")
    assert b"secret" not in FLASH and b"garage" not in FLASH
    assert [message[4] for message in Log(flash).messages()] == [b"a secret reading"]
