"""``holdfast replay``: the rows of a CSV file, published as readings of a device."""

import asyncio
import csv
import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from host.credentials import Credentials
from host.server import Server, parse_server
from tools.cli.client import Refused, connected
from tools.cli.failure import fail, failing_on
from wire.errors import WireError
from wire.properties import CONTENT_TYPE

ANSWER_S = 60
SENML = "application/senml+json"


class BadRow(Exception):
    """The file is not such a CSV file. The text names the file, the line if one is known, and what was expected."""


def replay(
    file: Annotated[
        Path, typer.Argument(metavar="CSV", help="The file: a header, then a time and one or more numbers in each row.")
    ],
    device: Annotated[str, typer.Option(help="The device that the readings are of.")] = "replay",
    metric: Annotated[str | None, typer.Option(help="The metric, if the file has one column of numbers.")] = None,
    unit: Annotated[str | None, typer.Option(help="The unit, such as Cel.")] = None,
    broker: Annotated[str, typer.Option(help="The broker.")] = "mqtt://127.0.0.1:1883",
) -> None:
    """Publish the rows of a CSV file as readings with their own times, each at QoS 1 to telemetry/DEVICE."""
    try:
        server = parse_server(broker, ("mqtt",))
    except ValueError as error:
        fail("replay", f"--broker: {error}")
    if not device or "+" in device or "#" in device:
        fail("replay", f"--device {device}: expected a name without + and #")
    with failing_on(OSError, BadRow, Refused, WireError, command="replay"):
        try:
            messages = list(_messages(file, device, metric, unit))
        except UnicodeDecodeError as error:
            raise BadRow(f"{file}: expected UTF-8: {error}") from None
        asyncio.run(_publish(server, f"telemetry/{device}", messages))
    print(f"{len(messages)} messages are with the broker")


def _messages(file: Path, device: str, metric: str | None, unit: str | None) -> Iterator[bytes]:
    """Yields a SenML pack for each row. Raises OSError, UnicodeDecodeError and BadRow."""
    with file.open(newline="", encoding="utf-8-sig") as text:
        rows = csv.reader(text)
        header = next(rows, [])
        if len(header) == 1 and ";" in header[0]:
            raise BadRow(f"{file}, line 1: expected commas between the cells, and a point in numbers; found semicolons")
        if len(header) < 2 or (metric and len(header) != 2):
            count = "one" if metric else "at least one"
            raise BadRow(f"{file}, line 1: expected a column of times and {count} of numbers")
        if _is_time(header[0]):
            raise BadRow(f"{file}, line 1: expected a header and not a time")
        metrics = [metric] if metric else header[1:]
        for row in filter(None, rows):  # a blank line has no cells
            where = f"{file}, line {rows.line_num}"
            if len(row) != len(header):
                raise BadRow(f"{where}: expected {len(header)} cells, found {len(row)}")
            if not _is_time(row[0]):
                raise BadRow(f"{where}: expected an ISO time, found {row[0]!r}")
            at = datetime.fromisoformat(row[0])
            records = [{"n": name, "v": _number(cell, where)} for name, cell in zip(metrics, row[1:], strict=True)]
            base = {"bn": f"{device}:", "bt": (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()}
            yield json.dumps([{**base, **({"bu": unit} if unit else {}), **records[0]}, *records[1:]]).encode()


def _number(cell: str, where: str) -> float:
    """Returns a cell's number. Raises BadRow, also for numbers that JSON does not have."""
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadRow(f"{where}: expected a finite number, found {cell!r}")
    return value


def _is_time(cell: str) -> bool:
    try:
        datetime.fromisoformat(cell)
    except ValueError:
        return False
    return True


async def _publish(server: Server, topic: str, messages: list[bytes]) -> None:
    """Returns when the broker has acknowledged all messages. Raises OSError, Refused and WireError."""
    async with connected(server, Credentials(), "replay") as client:
        sent = 0
        try:
            for message in messages:
                async with asyncio.timeout(ANSWER_S):
                    await client.publish(topic, message, {CONTENT_TYPE: SENML})
                sent += 1
            while client.unacknowledged:
                async with asyncio.timeout(ANSWER_S):
                    await client.take_puback()
        except TimeoutError:
            done = f"{sent - client.unacknowledged} of {len(messages)} messages"
            raise TimeoutError(f"the broker acknowledged {done}, and then none for {ANSWER_S} s") from None
