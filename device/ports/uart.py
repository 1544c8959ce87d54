"""A serial line with the reliable link of `wire.link` on it, which carries the same bytes as a TCP connection."""

import select

from device.boards import board
from device.clock import earliest
from device.ports import Down, Up
from wire.link import Link, LinkData, LinkDown, LinkUp

READ_BYTES = 512
PAUSE_WAIT_MS = 1_000  # for a far side that stalls; what is lost then is sent again
QUEUE_BYTES = 2048  # as much as the link may have on the way
WRITE_BYTES = 256  # a line that the poll calls writable takes these without making us wait, on every Linux driver


class Uart:
    """A port (see `device.ports`). Until the peer answers it goes on asking.

    Args:
        poller: the `select.poll` object on which the device waits.
        boot_id: u32 that differs each time the device starts.
    """

    def __init__(self, path: str, baud: int, poller, boot_id: int) -> None:
        self.name = path
        self._baud = baud
        self._poller = poller
        self._link = Link(boot_id)
        self._lines: list = []  # the one that is open
        self._unsent = b""
        self._ended: Down | None = None
        self._pause_end_ms: int | None = None  # until then the far side may take to become silent

    def open(self, now_ms: int) -> None:
        self._lines.append(board.open_line(self.name, self._baud))
        self._poller.register(self._lines[0].file, select.POLLIN)
        self._link.open(now_ms)
        self._collect()

    def advance(self, ready: int, now_ms: int) -> None:
        try:
            if ready & select.POLLOUT:
                self._write()
            if ready & select.POLLIN:
                self._link.receive_data(self._lines[0].read(READ_BYTES), now_ms)
            if ready & (select.POLLHUP | select.POLLERR):
                self._ended = Down("the line hung up")
            # While the line takes nothing, asking again would only pile up questions.
            if not self._unsent:
                self._link.handle_timer(now_ms)
            self._collect()
        except (OSError, MemoryError) as error:
            self._ended = Down(str(error))

    def next_event(self) -> Up | Down | bytes | None:
        while self._ended is None and (event := self._link.next_event()) is not None:
            self._collect()
            if isinstance(event, LinkUp):
                return Up()
            if isinstance(event, LinkData):
                return event.data
            if isinstance(event, LinkDown):
                return Down(event.text)
        ended, self._ended = self._ended, None
        return ended

    def send(self, data: bytes, now_ms: int) -> None:
        try:
            self._link.send(data, now_ms)
            self._collect()
        except MemoryError as error:  # the link may have taken a part of the bytes
            self._ended = Down(str(error))

    @property
    def has_room(self) -> bool:
        return self._link.queued < QUEUE_BYTES

    def next_timer_ms(self) -> int | None:
        return earliest([self._pause_end_ms, None if self._unsent else self._link.next_timer_ms()])

    def pause(self, now_ms: int) -> bool:
        """Asks the peer to be silent; returns True once the line may go unread, for example while flash is erased.

        Until then call it again after each `advance`. Call `resume` afterwards.
        """
        if self._pause_end_ms is None:
            self._pause_end_ms = now_ms + PAUSE_WAIT_MS
            self._link.pause(now_ms)
            self._collect()
        return now_ms >= self._pause_end_ms or (self._link.quiet and not self._unsent)

    def resume(self, now_ms: int) -> None:
        """Lets the peer send again."""
        self._pause_end_ms = None
        self._link.resume(now_ms)
        self._collect()

    def log(self, text: str) -> None:
        """Sends a line of text for the gateway's log; it may be lost. It works before the link is up, too."""
        self._link.send_log(text.encode())
        self._collect()

    def close(self) -> None:
        self._link.close()
        while self._link.next_event() is not None:
            pass
        if self._lines:
            self._unsent += self._link.data_to_send()
            try:
                self._poller.register(self._lines[0].file, select.POLLOUT)
                if self._poller.poll(0):
                    self._write()
            except OSError:
                pass  # the line is gone
            self._poller.unregister(self._lines[0].file)
            self._lines.pop().close()
        self._unsent = b""
        self._ended = None

    def _collect(self) -> None:
        """Takes what the link wants to send, but only after all earlier bytes are written.

        By then the link may have something more urgent to send.
        """
        if self._unsent or not self._lines:
            return
        self._unsent = self._link.data_to_send()
        if self._unsent:
            self._poller.register(self._lines[0].file, select.POLLIN | select.POLLOUT)

    def _write(self) -> None:
        written = self._lines[0].write(self._unsent[:WRITE_BYTES])
        self._unsent = self._unsent[written:]
        if not self._unsent:
            self._poller.register(self._lines[0].file, select.POLLIN)
