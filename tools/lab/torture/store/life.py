"""The life of a gateway's store, to be traced: ``python -m tools.lab.torture.store.life FOLDER SEED STEPS``.

On standard output it says, in a write of its own each: ``submitted N`` before it asks for the N-th step, ``durable N``
when the log has promised that, ``passed P`` before its consumer acknowledges the message at position P, ``compacted N``
at the end, when N messages were taken out of the middle of the log. Another consumer never takes its messages.
"""

import asyncio
import os
import sys
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gateway.store import Cursor, GroupCursor, MessageLog, compaction, maintenance
from gateway.store.sqlite import checkpoint, marks
from tools.lab.torture.store.model import steps

CONSUMER, AWAY, AWAY_TOPIC = "consumer", "away", "a"
SUBMITTED, DURABLE, PASSED, COMPACTED = "submitted", "durable", "passed", "compacted"
AT_ONCE = 4  # steps on their way, so that some share a commit


def on_one_disk() -> AbstractContextManager[object]:
    """What a cut leaves lies in another folder, and stands for the same files: it is no copy of the store."""
    return patch.object(marks, "file_id_of", return_value=1)


def _say(what: str, number: int) -> None:
    os.write(1, f"{what} {number}\n".encode())


def _note_durable(number: int, room: asyncio.Semaphore, done: asyncio.Future[list[Any]]) -> None:
    done.result()
    _say(DURABLE, number)
    room.release()


async def _consume(cursor: GroupCursor) -> None:
    while True:
        deliveries = await cursor.fetch(10)
        for delivery in deliveries:
            _say(PASSED, delivery.position)
            cursor.acknowledge_all([delivery.packet_identifier])
        await asyncio.sleep(0)


async def live(folder: Path, seed: int, count: int) -> None:
    """Writes ``count`` steps."""
    log = await MessageLog.open(folder, origin="gw")
    consuming = asyncio.create_task(_consume(GroupCursor(log, CONSUMER, ["#"], window=20)))
    Cursor(log, AWAY, [AWAY_TOPIC])
    room = asyncio.Semaphore(AT_ONCE)
    found = steps(seed)
    for number in range(1, count + 1):
        await room.acquire()
        _say(SUBMITTED, number)
        future = log.submit(next(found).work)
        future.add_done_callback(partial(_note_durable, number, room))
    for _ in range(AT_ONCE):
        await room.acquire()
    _say(COMPACTED, log.head - log.space.needed_from - log.space.needed_count)
    consuming.cancel()
    await log.close()


if __name__ == "__main__":
    # All that happens now and then happens often in a short life.
    checkpoint.ROOM_PAGES, checkpoint.FULL_PAGES, checkpoint.LAST_FROM_PAGES = 100, 60, 50
    checkpoint.AHEAD_FROM_PAGES, checkpoint.AHEAD_STEP_PAGES, checkpoint.LAST_PAGES = 40, 10, 5
    maintenance.MAINTENANCE_INTERVAL_S = 0.02
    compaction.SWEEP_FROM_BYTES, compaction.ROW_BYTES, compaction.PIECE_ROWS = 4_000, 2_000, 5
    with on_one_disk():
        asyncio.run(live(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
