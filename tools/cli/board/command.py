"""`holdfast flash`: from a blank board to its first reading with one command; or fifty boards."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from host.credentials import Credentials
from host.errors import HostError
from host.server import parse_server
from tools.cli.board.errors import BoardError, Refused
from tools.cli.board.progress import Progress
from tools.cli.board.runs.desk import Desk, drafts_of
from tools.cli.board.runs.many import PORTS, Many, Ways
from tools.cli.board.runs.order import Family, carry_out, check_of, read_draft
from tools.cli.board.runs.provision import Provision
from tools.cli.board.runs.record import Record
from tools.cli.board.settings import Settings
from tools.cli.failure import complain, fail, failing_on
from tools.cli.fleet.table import TableError, read_table
from tools.cli.site.commands.arguments import passphrase_from
from tools.cli.site.ledger import CERTIFICATE, PASSWORD
from tools.cli.site.site import Site

COMMAND = "flash"
FILE = "device.json"


def flash(
    board: Annotated[Family, typer.Argument(help="The family of the board.")],
    port: Annotated[str | None, typer.Option("--port", help="The board's serial port, such as /dev/ttyUSB0.")] = None,
    config: Annotated[
        Path, typer.Option("--config", help="The device's configuration; with --from, also a folder of them.")
    ] = Path(FILE),
    table: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="A CSV table with one row a board.")
    ] = None,
    at_once: Annotated[int, typer.Option("--at-once", min=1, help="How many boards of a table at once.")] = 8,
    ports: Annotated[
        list[str] | None,
        typer.Option("--ports", metavar="PATTERN", help="Where boards without a port in the table appear."),
    ] = None,
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
    replacing: Annotated[
        bool, typer.Option("--replace", help="Replace another program, and files that are not Holdfast's.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the first reading at the gateway.")] = True,
    wait_s: Annotated[float, typer.Option("--wait-s", min=1, help="How many seconds to wait for it.")] = 60.0,
    site: Annotated[
        Path | None,
        typer.Option("--site", metavar="DIR", help="The site that gives the board its key and certificate."),
    ] = None,
    account: Annotated[bool, typer.Option("--account", help="Have the site give a password instead.")] = False,
    reload: Annotated[
        str,
        typer.Option("--reload", metavar="COMMAND", help="Has gateways read the site's files, if it gave something."),
    ] = "",
    passphrase_fd: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The file descriptor with the passphrase of the site key.")
    ] = None,
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
    if (port is None) == (table is None):
        fail(COMMAND, "expected --port, or --from with a table of boards")
    if site is None and (account or reload or passphrase_fd is not None):
        fail(COMMAND, "--account, --reload and --passphrase-fd: expected --site with them")
    with failing_on(Refused, TableError, HostError, OSError, command=COMMAND):
        settings = _settings(port or "", baud, micropython, rescue, discard, replacing, drive)
        other = Credentials(user, password_file, ca) if user is not None or ca is not None else None
        check = check_of(board, micropython)
        opened = None if site is None else Site.open(site, lambda: passphrase_from(passphrase_fd))
        provision = None if opened is None else Provision(opened, PASSWORD if account else CERTIFICATE, reload)
        desk = Desk(settings, provision, other, wait, check)
        try:
            if table is None:
                (order,) = desk.orders([read_draft(config)])
                carry_out(order, board, Progress(), wait_s)
                return
            rows = read_table(table)
            if board is Family.RP2 and (without := [row for row in rows if not row.port]):
                raise Refused(f"{without[0].where}: port is missing: a blank RP2 shows a drive, and no port")
            orders = desk.orders(drafts_of(rows, config), [row.where for row in rows])
        except BoardError as error:
            fail(COMMAND, str(error), exit_code=1)
        finally:
            for note in opened.notes if opened is not None else []:
                complain(COMMAND, note)
        ways = Ways(board, 1 if board is Family.RP2 else at_once, wait_s, ports or PORTS)
        many = Many(list(zip(rows, orders, strict=True)), Record(table), ways)
        many.run()
    typer.echo(f"{len(rows) - len(many.faults)} of {len(rows)} boards are ready")
    if many.faults:
        fail(COMMAND, f"repeat the command for {', '.join(many.faults)}", exit_code=1)


def _settings(
    port: str,
    baud: int,
    micropython: Path | None,
    rescue: str | None,
    discard: bool,
    replaces: bool,
    drive: Path | None,
) -> "partial[Settings]":
    """What all boards of a command have in common."""
    if rescue is not None and discard:
        raise Refused("--rescue and --discard: expected one of them")
    try:
        server = None if rescue is None else parse_server(rescue, ("mqtt", "mqtts"))
    except ValueError as error:
        raise Refused(f"--rescue: {error}") from error
    return partial(
        Settings,
        port=port,
        baud=baud,
        micropython=micropython,
        rescue=server,
        discards=discard,
        replaces=replaces,
        drive=drive,
    )
