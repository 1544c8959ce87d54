"""A whole RP2040 in simulation: the drive of its ROM that takes a UF2 file, and the MicroPython that was written."""

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any

from tools.lab.sim.loader.flash_file import SECTOR_SIZE, FlashFile
from tools.lab.sim.whole.image import MIB
from tools.lab.sim.whole.power import Board
from tools.lab.sim.whole.uf2 import BLOCK_BYTES, RP2040_FAMILY, Download, make_uf2

INFO = "UF2 Bootloader v3.0\nModel: Raspberry Pi RP2\nBoard-ID: RPI-RP2\n"
OWN_FILES = {"INFO_UF2.TXT", "INDEX.HTM"}
LOOK_AGAIN_S = 0.02
STAGE_2_BYTES = 256  # the ROM starts the flash if the CRC at the end of these is right (RP2040 datasheet, 2.8.1)
CRC_POLYNOMIAL = 0x04C1_1DB7
PROGRAM_NAME = b"MicroPython"  # in every build of it: its banner begins so
UNIQUE_ID = bytes.fromhex("e6 61 41 03 e7 00 00 01")
STORAGE_BYTES = 848 * 1024  # of a Pico W (MicroPython's boards/RPI_PICO_W)


class PicoBoard(Board):
    """A Pico W. While it is in its ROM's loader, its drive is the folder `drive`, and there is no serial port.

    It is there at the start if nothing on the flash can be started, after `reset(loader=True)` (the button BOOTSEL) and
    after `machine.bootloader()`.

    Args:
        storage: the size of the storage area at the flash's end.
        files: how much of it the file system of the firmware has; None for all.
        unique_id: the number of its flash chip, by which a site tells boards apart.

    Attributes:
        drive: the path of the drive.
        flash: the flash chip.
    """

    platform = "rp2"
    machine = "Simulated Raspberry Pi Pico W with RP2040"
    architecture = 4  # ARMv6-M

    def __init__(
        self,
        folder: Path,
        *,
        flash_size: int = 2 * MIB,
        storage: int = STORAGE_BYTES,
        files: int | None = None,
        unique_id: bytes = UNIQUE_ID,
        **board: Any,
    ) -> None:
        super().__init__(folder, **board)
        self.flash = FlashFile(folder / "flash", flash_size)
        self.drive = folder / "drive"
        (folder / "unique_id").write_text(unique_id.hex())
        (folder / "storage").write_text(f"{flash_size - storage} {storage}")
        self._options = [] if files is None else [f"files={files}"]

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.flash.close()

    async def start(self) -> None:
        shutil.rmtree(self.drive, ignore_errors=True)
        if self.pins.boots_loader or not self._can_start():
            await self._serve_drive()
            return
        self.cable.plug()
        await self.run_program(*self._options)

    def _can_start(self) -> bool:
        first = self.flash.read(0, STAGE_2_BYTES)
        is_valid = _crc(first[:-4]) == int.from_bytes(first[-4:], "little")
        return is_valid and PROGRAM_NAME in self.flash.read(0, self.flash.size // 2)

    async def _serve_drive(self) -> None:
        """Shows the drive until a whole file has been copied to it."""
        self.cable.pull()
        self.drive.mkdir()
        (self.drive / "INFO_UF2.TXT").write_text(INFO)
        (self.drive / "INDEX.HTM").write_text("<html><body>A simulated board</body></html>\n")
        self.enter("loader")
        download = Download(RP2040_FAMILY, self.flash.size)
        taken: dict[str, int] = {}  # bytes by the name of a file
        while not download.is_whole:
            await asyncio.sleep(LOOK_AGAIN_S)
            for path in self.drive.iterdir():
                if path.name not in OWN_FILES and path.is_file():
                    content = path.read_bytes()
                    begin = taken.get(path.name, 0)
                    end = len(content) // BLOCK_BYTES * BLOCK_BYTES
                    download.take(content[begin:end])
                    taken[path.name] = end
        self._write(download)
        shutil.rmtree(self.drive, ignore_errors=True)
        self.pins.boots_loader = False

    def _write(self, download: Download) -> None:
        for sector in {start // SECTOR_SIZE for start, _ in download.pages.values()}:
            self.flash.erase(sector * SECTOR_SIZE, SECTOR_SIZE)
        for start, page in download.pages.values():
            self.flash.program(start, page)


def make_pico_firmware(program_bytes: int = 64 * 1024, seed: int = 1) -> bytes:
    """A UF2 file that stands for MicroPython's: noise, which no RP2040 could run."""
    noise = random.Random(seed)
    stage_2 = noise.randbytes(STAGE_2_BYTES - 4)
    program = PROGRAM_NAME + b" stands here\0" + noise.randbytes(program_bytes)
    return make_uf2(stage_2 + _crc(stage_2).to_bytes(4, "little") + program)


def _crc(content: bytes) -> int:
    """CRC-32 as the RP2040's ROM has it: the highest bit first, nothing inverted at the end."""
    value = 0xFFFF_FFFF
    for byte in content:
        value ^= byte << 24
        for _ in range(8):
            value = (value << 1 ^ (CRC_POLYNOMIAL if value & 0x8000_0000 else 0)) & 0xFFFF_FFFF
    return value
