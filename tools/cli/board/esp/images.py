"""Two files with which one `esptool write-flash` makes a blank ESP32 the device of a configuration."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from device.config import Config
from tools.cli.board.content import board_files
from tools.cli.board.errors import Refused
from tools.cli.board.esp.firmware import read_firmware
from tools.cli.board.esp.image import make_image
from tools.cli.board.esp.layout import choose_layout
from tools.cli.board.esp.loader import Chip
from tools.cli.device.check_config import Board as Kind
from tools.cli.device.check_config import refusals

MICROPYTHON, FILE_SYSTEM = "micropython.bin", "holdfast.littlefs"


@dataclass(frozen=True)
class Images:
    """Each file, and where on the flash it belongs.

    Attributes:
        micropython: the firmware's file, with a partition table that has room for the store.
        files: the file system, which has the device's passwords and keys.
    """

    micropython: bytes
    micropython_at: int
    files: bytes
    files_at: int

    def command(self, folder: Path) -> str:
        """Returns the command that writes the files in `folder` to a board."""
        parts = ((self.micropython_at, MICROPYTHON), (self.files_at, FILE_SYSTEM))
        words = [word for at, name in parts for word in (f"0x{at:x}", str(folder / name))]
        return shlex.join(["esptool", "write-flash", *words])


def make_images(config: Path, keys: Config, micropython: Path, program: Mapping[str, bytes]) -> Images:
    """Makes both.

    Args:
        config: the file of the configuration.
        keys: what it says.
        micropython: MicroPython's .bin file for the board.
        program: the firmware's files by their paths in `/lib`.

    Raises Refused, OSError.
    """
    firmware = read_firmware(micropython)
    check_kind(config, keys, firmware.title)
    layout = choose_layout(Chip(firmware.title, firmware.flash_size), firmware, None, keys)
    files = make_image(board_files(config, keys, program), len(layout.files))
    content = bytearray(firmware.content)
    for at, table in layout.table_pieces():
        content[at - firmware.begin : at - firmware.begin + len(table)] = table
    return Images(bytes(content), firmware.begin, files, layout.files.start)


def check_kind(config: Path, keys: Config, title: str) -> Kind | None:
    """Returns the kind of the boards with a chip, None if it is not known.

    Args:
        config: the file of the configuration.
        keys: what it says.
        title: the chip's name, as esptool has it.

    Raises Refused for a configuration that such a board cannot run.
    """
    kind = next((one for one in Kind if one == title.lower().replace("-", "")), None)
    if kind is not None and (wrong := refusals(keys, kind)):
        raise Refused("\n".join(f"{config}: {text}" for text in wrong))
    return kind
