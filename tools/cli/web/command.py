"""`holdfast device build`: the firmware for a board, or with `--web` a folder for a browser."""

import subprocess
from pathlib import Path
from typing import Annotated

import typer

from device.values import ConfigError
from host.files import SECRET_MODE
from tools.cli.board.errors import Refused
from tools.cli.build import BuildError
from tools.cli.device import build as firmware
from tools.cli.device.build import Board
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
        Path | None, typer.Option("--micropython", help="With --web: MicroPython's .bin file for the board.")
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
            if micropython or esp_web_tools:
                raise Refused("--micropython and --esp-web-tools: expected with --web")
            firmware.build(board, out, config, as_written)
            return
        if as_written:
            raise Refused("--as-written: expected without --web")
        if board is not Board.ESP32:
            raise Refused(f"--board is {board}, expected esp32 with --web: ESP Web Tools writes no other boards")
        if config is None or micropython is None or esp_web_tools is None:
            raise Refused("--web: expected with --config, --micropython and --esp-web-tools")
        _build_web(out or Path(FOLDER), config, micropython, esp_web_tools)


def _build_web(folder: Path, config: Path, micropython: Path, package: Path) -> None:
    if folder.exists() and not is_unfinished(folder) and any(folder.iterdir()) and not (folder / MANIFEST).exists():
        raise Refused(f"{folder} is neither empty nor an earlier build; nothing was changed")
    keys = firmware.read_config(config)
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
