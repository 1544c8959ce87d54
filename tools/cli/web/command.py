"""`holdfast device build`: the firmware for a board, or with `--web` a folder for a browser."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from device.values import ConfigError
from host.files import SECRET_MODE
from tools.cli.board.errors import Refused
from tools.cli.board.esp.images import FILE_SYSTEM, MICROPYTHON, make_images
from tools.cli.build import BuildError
from tools.cli.device import build as firmware
from tools.cli.device.build import Board, read_config
from tools.cli.failure import failing_on
from tools.cli.output import is_unfinished, replaced_whole
from tools.cli.web.esp_web_tools import NAME, TESTED, read_package
from tools.cli.web.folder import MANIFEST, make_folder

COMMAND = "device build"
FOLDER = "holdfast-web"


def build(
    board: Annotated[Board, typer.Option("--board", help="The kind of board.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder to write to.", show_default="holdfast-BOARD, holdfast-web")
    ] = None,
    web: Annotated[
        bool, typer.Option("--web", help="Write a folder with a page that writes one device to an ESP32.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option("--config", help="A device's configuration: only the modules that it needs.")
    ] = None,
    as_written: Annotated[
        bool, typer.Option("--as-written", help="Compile each module as it is written, for a program that imports it.")
    ] = False,
    micropython: Annotated[
        Path | None,
        typer.Option("--micropython", help="MicroPython's .bin file for an ESP32: also make images for esptool."),
    ] = None,
    esp_web_tools: Annotated[
        Path | None,
        typer.Option("--esp-web-tools", help=f"With --web: the file that `npm pack {NAME}@{TESTED}` makes."),
    ] = None,
) -> None:
    """Compile the firmware for a board: modules for its /lib, a manifest to freeze them, and an image for flash.

    With --web: a page from which a browser writes MicroPython, firmware and configuration to an ESP32.
    """
    with failing_on(Refused, BuildError, ConfigError, OSError, subprocess.CalledProcessError, command=COMMAND):
        if not web:
            if esp_web_tools:
                raise Refused("--esp-web-tools: expected with --web")
            _build(board, out or Path(f"holdfast-{board}"), config, micropython, as_written)
            return
        if as_written:
            raise Refused("--as-written: expected without --web")
        if board is not Board.ESP32:
            raise Refused(f"--board is {board}, expected esp32 with --web: ESP Web Tools writes no other boards")
        if config is None or micropython is None or esp_web_tools is None:
            raise Refused("--web: expected with --config, --micropython and --esp-web-tools")
        _build_web(out or Path(FOLDER), config, micropython, esp_web_tools)


def _build(board: Board, folder: Path, config: Path | None, micropython: Path | None, as_written: bool) -> None:
    if micropython is None:
        firmware.build(board, folder, config, as_written)
        return
    if config is None or board is not Board.ESP32:
        raise Refused("--micropython: expected with --board esp32 and --config, whose device the images are for")
    keys, commands = read_config(config), []

    def images(program: Mapping[str, bytes]) -> dict[str, bytes]:
        made = make_images(config, keys, micropython, program)
        commands.append(made.command(folder))
        return {MICROPYTHON: made.micropython, FILE_SYSTEM: made.files}

    firmware.build(board, folder, config, as_written, images)
    typer.echo(f"{folder / FILE_SYSTEM}: its file system, also with passwords. On a blank board: {commands[0]}")


def _build_web(folder: Path, config: Path, micropython: Path, package: Path) -> None:
    if folder.exists() and not is_unfinished(folder) and any(folder.iterdir()) and not (folder / MANIFEST).exists():
        raise Refused(f"{folder} is neither empty nor an earlier build; nothing was changed")
    keys = read_config(config)
    tools = read_package(package)
    made = make_folder(config, keys, micropython, tools)
    with replaced_whole(folder, last=MANIFEST) as making:
        for name, content in made.files.items():
            (making / name).parent.mkdir(exist_ok=True)
            (making / name).write_bytes(content)
            if name in made.secret:
                (making / name).chmod(SECRET_MODE)
    for name, at in made.parts:
        typer.echo(f"0x{at:06x} {len(made.files[name]) // 1024:6} KiB  {name}")
    if tools.version != TESTED:
        typer.echo(f"{NAME} is {tools.version}; {TESTED} is the tested one")
    typer.echo(f"{folder}: a page for {keys.client_id}. It holds what the device's configuration holds, also passwords")
