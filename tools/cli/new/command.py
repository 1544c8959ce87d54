"""``holdfast device new``: writes a checked configuration, or one for each board of a table."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from host.errors import HostError
from host.files import SECRET_MODE, replace_file, write_new
from tools.cli.board.console import Console
from tools.cli.board.errors import BoardError, Refused
from tools.cli.device.check_config import Board
from tools.cli.failure import fail, failing_on, words_of
from tools.cli.fleet.table import TableError, read_table
from tools.cli.new import announced
from tools.cli.new.answers import AnswerError, with_name
from tools.cli.new.draft import as_json, draft
from tools.cli.new.gather import Gathering
from tools.cli.new.questions import Questions

COMMAND = "device new"
FILE, FOLDER = "device.json", "devices"
PRIVATE_FOLDER = 0o700
look = cache(announced.look)


def new(
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The file to write, with --from the folder.", show_default=f"{FILE}, or {FOLDER}"),
    ] = None,
    table: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="A CSV table with one row a board.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The device's name, its client identifier.")] = None,
    board: Annotated[Board | None, typer.Option(help="The kind of board.")] = None,
    port: Annotated[
        str | None, typer.Option(metavar="PORT", help="The serial port of a board with MicroPython, which is asked.")
    ] = None,
    wifi: Annotated[str | None, typer.Option(metavar="NAME", help="The Wi-Fi network; - for none.")] = None,
    wifi_password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The Wi-Fi's password, on one line.")
    ] = None,
    open_wifi: Annotated[bool, typer.Option("--open-wifi", help="The Wi-Fi has no password.")] = False,
    gateway: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE", help="HOST, HOST:PORT, mqtt://…, mqtts://…, or mdns for the one that announces itself."
        ),
    ] = None,
    user: Annotated[str | None, typer.Option(help="The device's user name at the gateway.")] = None,
    password_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Its password, on one line.")] = None,
    topic: Annotated[str | None, typer.Option(help="The topic of its messages, by default telemetry/NAME.")] = None,
    status: Annotated[str | None, typer.Option(help="The topic of its status, by default status/NAME.")] = None,
    commands: Annotated[str | None, typer.Option(metavar="FILTER", help="From where it takes commands.")] = None,
    interval_s: Annotated[str | None, typer.Option(metavar="SECONDS", help="The time between samples.")] = None,
    sensor: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A sensor, as adc:pin=34,full_scale_mv=3300; may be repeated."),
    ] = None,
    i2c: Annotated[
        list[str] | None,
        typer.Option(metavar="BUS:SCL:SDA", help="Where to look for sensors at --port; may be repeated."),
    ] = None,
    one_wire: Annotated[
        list[str] | None, typer.Option(metavar="PIN", help="The same on 1-Wire; may be repeated.")
    ] = None,
    flash: Annotated[str | None, typer.Option(metavar="PLACE", help="The store's place, flash.path.")] = None,
    ntp: Annotated[str | None, typer.Option(metavar="HOST", help="The time server, with mqtts://.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace files that are there.")] = False,
) -> None:
    """Write a checked configuration for a device: asks for what no flag says.

    With --from it writes one for each row of a table, as NAME/device.json, and asks nothing. All rows are checked
    before anything is written.
    """
    flags: dict[str, Any] = {
        "name": name,
        "board": board,
        "wifi": wifi,
        "wifi_password_file": wifi_password_file,
        "gateway": gateway,
        "user": user,
        "password_file": password_file,
        "topic": topic,
        "status": status,
        "commands": commands,
        "interval_s": interval_s,
        "flash": flash,
        "ntp": ntp,
        "sensors": ";".join(sensor or []) or None,
    }
    given = {key: str(value) for key, value in flags.items() if value is not None}
    if (i2c or one_wire) and (port is None or table is not None):
        fail(COMMAND, "--i2c and --one-wire: sensors are looked for at a board, expected --port and no --from")
    with failing_on(AnswerError, TableError, HostError, OSError, Refused, command=COMMAND):
        if table is not None:
            if name is not None or port is not None:
                raise AnswerError("--name and --port: expected none with --from, whose table has them")
            _write_all(_from_table(table, given, open_wifi), out or Path(FOLDER), replace)
            return
        path = out or Path(FILE)
        if path.exists() and not replace:
            raise AnswerError(f"{path} is there already: --replace replaces it")
        try:
            questions = Questions()
            gathering = Gathering(questions, with_name(given, name) if name else given, open_wifi, look)
            console = None if port is None else Console(port)
            keys = draft(gathering.answers(console, i2c or (), one_wire or ()))
        except (EOFError, KeyboardInterrupt):
            fail(COMMAND, "nothing was written", 130)
        except BoardError as error:
            fail(COMMAND, str(error), 1)
        _write(path, as_json(keys))
        typer.echo(f"{path}: ok, with passwords in it where there are some; only you can read it")


def _from_table(table: Path, given: Mapping[str, str], open_wifi: bool) -> dict[str, bytes]:
    """Returns the configuration of each row by its name. Raises TableError with all faults, each with its line."""
    found, faults = {}, []
    silent = Questions(has_person=False)
    for row in read_table(table):
        # A path in the table begins at the table, one in a flag where the command runs.
        cells = {key: _from(table, cell) if key.endswith("_file") else cell for key, cell in row.cells.items()}
        try:
            gathering = Gathering(silent, with_name({**given, **cells}, row.name), open_wifi, look)
            found[row.name] = as_json(draft(gathering.answers()))
        except (AnswerError, HostError) as error:
            faults += [f"{row.where}: {line}" for line in words_of(error).splitlines()]
    if faults:
        raise TableError("\n".join(faults))
    return found


def _from(table: Path, file: str) -> str:
    return str(table.parent / file)


def _write_all(configurations: Mapping[str, bytes], folder: Path, replace: bool) -> None:
    paths = {folder / name / FILE: content for name, content in configurations.items()}
    there = [path for path, content in paths.items() if path.exists() and path.read_bytes() != content]
    if there and not replace:
        raise AnswerError("\n".join(f"{path} is there with other content: --replace replaces it" for path in there))
    for path, content in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
        _write(path, content)
    typer.echo(f"{folder}: {len(paths)} configurations, as NAME/{FILE}; only you can read them")


def _write(path: Path, content: bytes) -> None:
    """Only its owner can read the file, also if others could read the one before. Raises OSError."""
    if path.exists():
        path.chmod(SECRET_MODE)
        replace_file(path, content)
    else:
        write_new(path, content)
