"""`holdfast flash`: from a blank board to its first reading with one command."""

from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from device.config import Config, load
from device.values import ConfigError as DeviceConfigError
from host.credentials import Credentials
from host.errors import ConfigError
from host.server import Server, parse_server
from tools.cli.board.errors import BoardError, Refused
from tools.cli.board.esp.steps import Esp32
from tools.cli.board.login import device_gateway
from tools.cli.board.progress import Progress
from tools.cli.board.reading import FirstReading
from tools.cli.board.rp2.steps import Rp2
from tools.cli.board.settings import Settings
from tools.cli.columns import printable
from tools.cli.failure import fail, failing_on

COMMAND = "flash"
SHOWN_BYTES = 200


class Board(StrEnum):
    """The families of boards."""

    ESP32 = "esp32"
    RP2 = "rp2"


def flash(
    board: Annotated[Board, typer.Argument(help="The family of the board.")],
    port: Annotated[str, typer.Option("--port", help="The board's serial port, such as /dev/ttyUSB0.")],
    config: Annotated[Path, typer.Option("--config", help="The device's configuration.")] = Path("device.json"),
    micropython: Annotated[
        Path | None,
        typer.Option("--micropython", help="MicroPython for the board: its .bin file, or .uf2 for an RP2."),
    ] = None,
    baud: Annotated[int, typer.Option(min=9600, help="The speed at which an ESP32 is written.")] = 460_800,
    rescue: Annotated[
        str | None,
        typer.Option("--rescue", metavar="URL", help="Send messages that wait on the board to this broker first."),
    ] = None,
    discard: Annotated[bool, typer.Option("--discard", help="Give up messages that wait on the board.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace another program, and files that are not Holdfast's.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the first reading at the gateway.")] = True,
    wait_s: Annotated[float, typer.Option("--wait-s", min=1, help="How many seconds to wait for it.")] = 60.0,
    user: Annotated[str | None, typer.Option(help="Another login than the device's at gateway and --rescue.")] = None,
    password_file: Annotated[Path | None, typer.Option(help="Its password, on one line.")] = None,
    ca: Annotated[Path | None, typer.Option(help="The authority of the gateway's certificate, in PEM.")] = None,
    drive: Annotated[
        Path | None, typer.Option("--drive", help="The folder of an RP2's drive.", show_default="found")
    ] = None,
) -> None:
    """Write MicroPython, firmware, configuration and keys to a board, and wait for its first reading.

    Ends with 2 if something that was given cannot be used, or something on the board would be lost: then nothing was
    written. Ends with 1 if something goes wrong at the board: repeat the command then.
    """
    with failing_on(Refused, DeviceConfigError, ConfigError, OSError, command=COMMAND):
        keys = _read(config)
        settings = _settings(config, keys, port, baud, micropython, rescue, discard, replace, drive)
        own = device_gateway(config, keys)
        login = own[1] if own else Credentials()
        if user is not None or ca is not None:
            login = Credentials(user, password_file, ca)
        settings = _with_login(settings, login)
        if wait and own is None:
            raise Refused(f"{config}: no port leads over a network, so no reading can be awaited: add --no-wait")
        try:
            with ExitStack() as stack:
                server, awaited = own[0] if own else None, None
                if wait and server is not None:
                    awaited = stack.enter_context(FirstReading(server, login, keys.topic, keys.client_id))
                progress = Progress()
                run = Rp2(settings, progress) if board is Board.RP2 else Esp32(settings, progress)
                run.flash()
                if awaited is not None:
                    awaited.begin()
                run.start()
                if awaited is not None:
                    _wait(awaited, progress, wait_s, server)
        except BoardError as error:
            fail(COMMAND, str(error), exit_code=1)


def _read(config: Path) -> Config:
    """Raises Refused, ConfigError."""
    try:
        config.open("rb").close()
    except OSError as error:
        raise Refused(f"{config}: {error.strerror}") from error
    keys: Config = load(str(config))
    return keys


def _settings(
    config: Path,
    keys: Config,
    port: str,
    baud: int,
    micropython: Path | None,
    rescue: str | None,
    discard: bool,
    replace: bool,
    drive: Path | None,
) -> Settings:
    if rescue is not None and discard:
        raise Refused("--rescue and --discard: expected one of them")
    try:
        server = None if rescue is None else parse_server(rescue, ("mqtt", "mqtts"))
    except ValueError as error:
        raise Refused(f"--rescue: {error}") from error
    return Settings(port, baud, config, keys, micropython, server, None, discard, replace, drive)


def _with_login(settings: Settings, login: Credentials) -> Settings:
    return Settings(**{**vars(settings), "login": login})


def _wait(awaited: FirstReading, progress: Progress, seconds: float, server: Server | None) -> None:
    with progress.step("waited for the first reading"):
        payload = awaited.wait(seconds)
    if payload is None:
        raise BoardError(f"no reading came to {server} within {seconds:g} s")
    text = payload[:SHOWN_BYTES].decode(errors="replace") if payload[:1] == b"[" else f"{len(payload)} bytes"
    progress.say(f"first reading: {printable(text)}")
