"""An attacker's server, to which a route of the gateway connects."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tools.lab.torture.attacks.line import PIECE

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def serve(port: int, answer: Answer) -> None:
    """Answers each connection of the gateway, as long as it stands."""

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await answer(reader, writer)
        writer.close()

    async with await asyncio.start_server(guarded, "127.0.0.1", port) as server:
        await server.serve_forever()


@asynccontextmanager
async def dropping(reader: asyncio.StreamReader) -> AsyncIterator[asyncio.Task[None]]:
    """Drops what the gateway sends; the task ends when the gateway ends the connection."""

    async def drop() -> None:
        with contextlib.suppress(OSError):
            while await reader.read(PIECE):
                pass

    reading = asyncio.create_task(drop())
    try:
        yield reading
    finally:
        reading.cancel()
