"""The connection to the next broker: a dull shell around the sans-IO client."""

import asyncio
from collections.abc import Callable
from typing import cast

from wire.client import ClientConnection
from wire.errors import Closed
from wire.identity import KEEP, WISH_PROPERTY
from wire.packets import Packet
from wire.properties import USER_PROPERTY


class Remote(asyncio.Protocol):
    """Reads, feeds, hands packets on, writes, re-arms one timer.

    Args:
        client: the connection's protocol state.
        handle: takes each packet that the broker sent.
    """

    def __init__(self, client: ClientConnection, handle: Callable[[Packet], None]) -> None:
        self._client = client
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[str] = self._loop.create_future()
        """Done with the reason once the connection is over."""
        self.writable = asyncio.Event()
        """Clear while the transport has more bytes than it can send soon."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self.writable.set()
        self._client.connect(self._now_ms(), {USER_PROPERTY: [(WISH_PROPERTY, KEEP)]})
        self.flush()

    def data_received(self, data: bytes) -> None:
        self._client.receive_data(data, self._now_ms())
        self._handle_events()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(str(error) if error else "the broker closed the connection")

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def flush(self) -> None:
        """Writes what the client has to send, and re-arms its timer."""
        self._write()
        if self._timer is not None:
            self._timer.cancel()
        deadline_ms = self._client.next_timer_ms()
        self._timer = None if deadline_ms is None else self._loop.call_at(deadline_ms / 1000, self._on_timer)

    def close(self, reason: str) -> None:
        """Says DISCONNECT where the connection still stands, and ends it for the reason given."""
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
        self._client.handle_timer(self._now_ms())
        self._handle_events()

    def _handle_events(self) -> None:
        while not self.ended.done() and (event := self._client.next_event()) is not None:
            if isinstance(event, Closed):
                self.close(event.text)
            else:
                self._handle(event)
        if not self.ended.done():
            self.flush()

    def _end(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.writable.set()
        if not self.ended.done():
            self.ended.set_result(reason)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
