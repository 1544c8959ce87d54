"""The export of a backlog: what waits for a route goes into a file, and no longer waits."""

import asyncio
import secrets
import time
from pathlib import Path

from gateway.routes import Message
from gateway.store import Backlog, Delivery, LaneCursor, MessageLog, drops
from uplink.carry.backlog_file import BacklogWriter, Header
from uplink.outlet.batch import BatchPacker
from uplink.queue.route_queue import RouteQueue
from wire.bulk.column_batch import SIZE_MAX

READ_MOST = 1000  # messages at once
BATCH_MESSAGES, BATCH_BYTES = 5000, 1 << 20


class ExportFailed(Exception):
    """The file could not be written; the text says why. Everything waits as before."""


async def export_backlog(queue: RouteQueue, log: MessageLog, gateway_name: str, path: Path) -> int:
    """Writes what waits for a route to a file; once that is durable, it no longer waits. Returns how many messages.

    Messages that were in flight are in the file too, as they may not have arrived; QoS 2 messages whose flow has begun
    and refused messages are not. A crash before the end leaves no file, or the file and everything waiting.

    Args:
        queue: the route's; the route has no connection, and its watch does not run.
        log: the gateway's store.
        gateway_name: the gateway's name, for the file's header.
        path: the file, which does not exist.

    Raises:
        ExportFailed: the file cannot be written.
        sqlite3.Error: the messages cannot be read.
    """
    export = _Export(queue, log, path)
    header = Header(secrets.token_hex(16), gateway_name, queue.name, int(time.time() * 1000))
    queue.lanes.outlet.give_back()
    try:
        await asyncio.to_thread(export.open, header)
        return await export.run()
    except OSError as error:
        raise ExportFailed(f"{path}: {error.strerror or error}") from error


class _Export:
    def __init__(self, queue: RouteQueue, log: MessageLog, path: Path) -> None:
        self._queue = queue
        self._log = log
        self._path = path
        self._packer = BatchPacker(BATCH_MESSAGES, BATCH_BYTES, 0, retained_alone=False)
        self._expired: list[Message] = []
        self._writer: BacklogWriter

    def open(self, header: Header) -> None:
        self._writer = BacklogWriter(self._path, header)

    async def run(self) -> int:
        cursors, head = self._queue.lanes.cursors, self._log.head
        handed_out: dict[LaneCursor, list[int]] = {cursor: [] for cursor in cursors}
        try:
            with self._queue.unselected():
                for cursor in cursors:
                    while deliveries := await cursor.fetch_now(READ_MOST):  # at most a window of them
                        handed_out[cursor] += [one.packet_identifier for one in deliveries]
                        await self._add(deliveries)
                    await self._add_waiting(cursor, head)
            await self._write(is_last=True)
            messages = await asyncio.to_thread(self._writer.finish)
        except BaseException:
            for cursor in cursors:
                cursor.redeliver(handed_out[cursor])
            await asyncio.to_thread(self._writer.discard)
            raise
        for message in self._expired:
            self._log.drop(drops.EXPIRED, self._queue.consumer, message)
        for cursor in cursors:
            cursor.acknowledge_all(handed_out[cursor])
            cursor.go_past(head)
            cursor.tally.stop()  # until it is counted again
            cursor.tally.noticed = Backlog(self._log.count_behind(cursor.position))
        self._log.changed()
        await self._log.submit([])
        await self._queue.watch.count()
        return messages

    async def _add_waiting(self, cursor: LaneCursor, head: int) -> None:
        """Adds what waits behind the deliveries that a cursor has handed out."""
        position = cursor.unread_from
        while position < head:
            found = await self._log.read(position, READ_MOST)
            if not found:
                break
            position = found[-1][0]
            waiting = []
            for at, message in found:
                grant = cursor.grant(at, message) if at <= head and cursor.is_waiting_for(at, message) else None
                if grant is not None:
                    waiting.append(Delivery(at, 0, message, False, *grant))
            await self._add(waiting)

    async def _add(self, deliveries: list[Delivery]) -> None:
        now_ms = int(time.time() * 1000)
        for delivery in deliveries:
            if 0 < delivery.message.expires_ms <= now_ms:
                self._expired.append(delivery.message)
            else:
                self._packer.add(delivery, now_ms)
        await self._write(is_last=False)

    async def _write(self, *, is_last: bool) -> None:
        """Writes the batches that are full, or all that is left."""
        packer = self._packer
        while len(packer) >= (1 if is_last else BATCH_MESSAGES):
            payload, deliveries, _ = packer.pack(SIZE_MAX)
            if payload is None:
                raise ExportFailed(f"the message at position {deliveries[0].position} is too large for a column batch")
            await asyncio.to_thread(self._writer.add, payload, len(deliveries))
