"""A message log on a folder, and a look into its file from outside."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from gateway.message import Message
from gateway.store.log import MessageLog


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[MessageLog]:
    log = await MessageLog.open(folder, origin="gw")
    try:
        yield log
    finally:
        await log.close()


async def append_all(log: MessageLog, messages: Iterable[Message]) -> list[int]:
    futures = [log.append(message) for message in messages]
    return [await future for future in futures]


def stored(folder: Path, query: str, file: str = "messages.sqlite") -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(folder / file)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()
