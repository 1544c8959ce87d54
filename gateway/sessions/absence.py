"""Neighbours of mode active-passive that are away: messages for them are dropped, and leave ranges ``unrouted``.

What is in flight to a neighbour when its connection ends stays: it may have arrived, and goes again over the next one.
After a start this may be all that waits, so nothing is dropped until that has gone.
"""

import asyncio

from gateway.sessions.session import Session
from gateway.store import MessageLog, drops

PAUSE_S = 1.0  # between two looks at what has been stored meanwhile


async def drop_while_away(log: MessageLog, session: Session) -> None:
    """Drops what waits for a neighbour's session until the neighbour connects. Raises sqlite3.Error."""
    while session.connection is None:
        await drop_waiting(log, session)
        await asyncio.sleep(PAUSE_S)


async def drop_waiting(log: MessageLog, session: Session) -> None:
    """Drops what waits for a neighbour's session. Raises sqlite3.Error."""
    if session.cursor.unread_from >= log.found.newest:
        await session.cursor.discard_oldest(lambda _: True, lambda _: drops.UNROUTED)
