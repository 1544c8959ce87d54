"""One board to be flashed, and its way from the look at it to the first reading."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from device.config import Config
from device.values import ConfigError as DeviceConfigError
from host.credentials import Credentials
from host.server import Server
from tools.cli.board.errors import BoardError, Refused
from tools.cli.board.esp.firmware import read_firmware
from tools.cli.board.esp.images import check_kind
from tools.cli.board.esp.steps import Esp32
from tools.cli.board.hold import held
from tools.cli.board.progress import Progress
from tools.cli.board.reading import FirstReading
from tools.cli.board.rp2.steps import Rp2
from tools.cli.board.rp2.steps import check_keys as check_rp2
from tools.cli.board.rp2.uf2 import read_uf2
from tools.cli.board.settings import Settings
from tools.cli.board.tools import check_tools
from tools.cli.columns import printable

SHOWN_BYTES = 200


class Family(StrEnum):
    """The families of boards."""

    ESP32 = "esp32"
    RP2 = "rp2"


@dataclass(frozen=True)
class Draft:
    """A configuration that is to be flashed.

    Attributes:
        path: its file, beside which the files of its ports lie.
        content: the file's content, with the board's name in it.
        keys: the same as an object.
    """

    path: Path
    content: bytes = field(repr=False)
    keys: dict[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        """The board's name, as far as it has one."""
        return str(self.keys.get("client_id", ""))

    def checked(self, keys: dict[str, Any] | None = None) -> Config:
        """Checks the configuration, or other keys in its place. Raises Refused."""
        try:
            return Config(json.loads(json.dumps(self.keys if keys is None else keys)))
        except DeviceConfigError as error:
            raise Refused(f"{self.path}: {error}") from error


@dataclass(frozen=True)
class Order:
    """A board to be flashed, checked as far as that needs no board.

    Attributes:
        settings: with everything but the port, where that is found later.
        server: the gateway at which its first reading is awaited; None if it is not awaited.
        login: the login there.
        listens_as: the client identifier there; None for any.
        patience_s: how long the gateway may refuse that.
    """

    settings: Settings
    server: Server | None
    login: Credentials
    listens_as: str | None = None
    patience_s: float = 0

    @property
    def name(self) -> str:
        """The board's name."""
        return str(self.settings.keys.client_id)

    def at(self, port: str) -> "Order":
        """Returns the order for the board at a port."""
        return replace(self, settings=replace(self.settings, port=port))


def read_draft(path: Path, name: str | None = None) -> Draft:
    """Reads a configuration.

    Args:
        path: the file.
        name: takes the place of `%u` in it; None for a file that is as it is.

    Raises:
        Refused: it cannot be read, or is no JSON object.
    """
    try:
        content = path.read_bytes()
        if name is not None:
            content = content.replace(b"%u", name.encode())
        keys = json.loads(content)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise Refused(f"{path} is no JSON: {error}") from error
    if not isinstance(keys, dict):
        raise Refused(f"{path}: expected an object of keys and values")
    return Draft(path, content, keys)


def check_of(family: Family, micropython: Path | None) -> Callable[[Path, Config], object]:
    """Reads MicroPython's file, if there is one, and returns what checks configurations for boards that it is for.

    That takes a configuration's file and what it says, and raises Refused if no such board can run it.

    Raises:
        Refused: the file is no MicroPython of this family.
        OSError: it cannot be read.
    """
    if family is Family.RP2:
        if micropython is not None:
            read_uf2(micropython)
        return check_rp2
    if micropython is None:
        return lambda _config, _keys: None  # the board says of which kind it is
    title = read_firmware(micropython).title

    def check(config: Path, keys: Config) -> None:
        try:
            check_kind(config, keys, title)
        except Refused as error:
            raise Refused(
                f"{micropython} is for {title}, and no such board can have this configuration:\n{error}"
            ) from error

    return check


def carry_out(order: Order, family: Family, progress: Progress, wait_s: float) -> None:
    """Flashes the board at the order's port, and waits for its first reading.

    Raises:
        Refused: nothing was written, or only MicroPython.
        BoardError: something went wrong at the board.
        ModuleNotFoundError: a tool is not installed.
    """
    settings, server = order.settings, order.server
    check_tools()
    with ExitStack() as stack:
        stack.enter_context(held(settings.port))
        progress.say(f"{order.name}: the board at {settings.port}")
        awaited = None
        if server is not None:
            listener = FirstReading(
                server, order.login, settings.keys.topic, order.name, order.listens_as, order.patience_s
            )
            awaited = stack.enter_context(listener)
        run = Rp2(settings, progress) if family is Family.RP2 else Esp32(settings, progress)
        run.flash()
        if awaited is not None:
            awaited.begin()
        run.start()
        if awaited is not None:
            _wait(awaited, progress, wait_s, order)


def _wait(awaited: FirstReading, progress: Progress, seconds: float, order: Order) -> None:
    with progress.step("waited for the first reading"):
        payload = awaited.wait(seconds)
    if payload is None:
        settings = order.settings
        moved = "; a board that a command has moved sends to its new place" if settings.keys.commands else ""
        raise BoardError(
            f"no reading came to {order.server} within {seconds:g} s. `mpremote connect {settings.port}` shows what "
            f"the board says, and docs/how-to/first-board.md what to check then{moved}"
        )
    text = payload[:SHOWN_BYTES].decode(errors="replace") if payload[:1] == b"[" else f"{len(payload)} bytes"
    progress.say(f"first reading: {printable(text)}")
