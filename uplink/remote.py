"""The connection to the next broker: the shell with the IO around the sans-IO client."""

import asyncio
from collections.abc import Callable
from typing import cast

from wire.bulk.connection import Acknowledgements, BulkClientConnection
from wire.bulk.reader import BulkReader
from wire.codec.packets import Packet
from wire.errors import Closed
from wire.identity import KEEP, WISH_PROPERTY
from wire.properties import USER_PROPERTY


class Remote(asyncio.Protocol):
    """Feeds the client with bytes and time, hands its packets on, and writes its bytes.

    Args:
        client: the connection's protocol state.
        handle: takes each packet that the broker sent, or many acknowledgements of success at once.
    """

    def __init__(self, client: BulkClientConnection, handle: Callable[[Packet | Acknowledgements], None]) -> None:
        self._client = client
        self._handle = handle
        self._reader = BulkReader(client, {}, ())
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()  # clear while the transport has more bytes than it can send soon
        self.ended: asyncio.Future[str] = self._loop.create_future()
        """Done with the reason once the connection is over."""

    @property
    def backlog(self) -> int:
        """Bytes that are not on the line yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    async def drain(self) -> None:
        """Waits until the backlog is small. Raises OSError once the connection is over."""
        await self._writable.wait()
        if self.ended.done():
            raise OSError(self.ended.result())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class does not derive from it
        self._writable.set()
        self._client.connect(self._now_ms(), {USER_PROPERTY: [(WISH_PROPERTY, KEEP)]})
        self.flush()

    def data_received(self, data: bytes) -> None:
        for step in self._reader.feed(data, self._now_ms(), lambda _: False):
            if step is None:
                self._handle_events()
            elif isinstance(step, Acknowledgements):
                self._handle(step)
            if self.ended.done():
                return
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(str(error) if error else "the broker closed the connection")

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def flush(self) -> None:
        """Writes what the client has to send, and re-arms its timer; does nothing once the connection is over."""
        if self.ended.done():
            return
        self._write()
        deadline_ms = self._client.next_timer_ms()
        if deadline_ms is None or (self._timer is not None and self._timer.when() <= deadline_ms / 1000):
            return  # a timer that is early re-arms itself
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline_ms / 1000, self._on_timer)

    def close(self, reason: str) -> None:
        """Ends the connection for the reason given, with a DISCONNECT where it still stands."""
        if self.ended.done():
            return
        self._end(reason)
        if self._transport is not None:
            if self._client.connected:
                self._client.disconnect()
            self._write()
            self._transport.close()

    def _write(self) -> None:
        data = self._client.data_to_send()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _on_timer(self) -> None:
        self._timer = None
        self._client.handle_timer(self._now_ms())
        self._handle_events()
        self.flush()

    def _handle_events(self) -> None:
        while not self.ended.done() and (event := self._client.next_event()) is not None:
            if isinstance(event, Closed):
                self.close(event.text)
            else:
                self._handle(event)

    def _end(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._writable.set()
        if not self.ended.done():
            self.ended.set_result(reason)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
