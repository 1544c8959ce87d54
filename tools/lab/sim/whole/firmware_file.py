"""Files that stand for MicroPython's firmware: valid to every tool, and a simulated board runs a MicroPython for them.

Their program is noise of the usual size: no ESP32 could run it.
"""

import random

from esp_idf_defs.partitions import MAX_PARTITION_LENGTH, PARTITION_TABLE_OFFSET, PartitionTable

from tools.lab.sim.loader.chips import Chip
from tools.lab.sim.whole.image import MIB, make_image

MICROPYTHON = "micropython"  # the project in the description of its program
VERSION = "1.27.0"
APP_OFFSET = 0x10000
# MicroPython's partitions-4MiB.csv up to 1.25; since 1.26 its firmware adds `vfs` itself where the table has none.
TABLE = """\
nvs,      data, nvs,     0x9000,   0x6000,
phy_init, data, phy,     0xf000,   0x1000,
factory,  app,  factory, 0x10000,  0x1F0000,
vfs,      data, fat,     0x200000, 0x200000,
"""


def make_firmware(
    chip: Chip,
    app_bytes: int = 64 * 1024,
    table: str = TABLE,
    flash_size: int = 4 * MIB,
    project: str = MICROPYTHON,
    seed: int = 1,
) -> bytes:
    """The .bin file as it is downloaded: what is written at `chip.bootloader_at`.

    Args:
        app_bytes: the size of the program; MicroPython's own has some 1.7 MB.
        table: the partition table, as text.
        flash_size: what the headers say of the chip.
        project: another than "micropython" makes a firmware that is no MicroPython.
    """
    noise = random.Random(seed)
    bootloader = make_image(chip.image_id, noise.randbytes(16 * 1024), flash_size)
    # A third of a firmware's bytes is zero, and the rest compresses little.
    parts = [noise.randbytes(64) + bytes(32) for _ in range(app_bytes // 96 + 1)]
    app = make_image(chip.image_id, b"".join(parts)[:app_bytes], flash_size, project, VERSION)
    whole = bytearray(b"\xff" * (APP_OFFSET + len(app)))
    made = PartitionTable.from_csv(table).to_binary()[:MAX_PARTITION_LENGTH]
    for at, content in ((chip.bootloader_at, bootloader), (PARTITION_TABLE_OFFSET, made), (APP_OFFSET, app)):
        whole[at : at + len(content)] = content
    return bytes(whole[chip.bootloader_at :])
