"""An open serial port: the link over it, and a new port for the broker whenever the link comes up."""

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Callable

import serial

from gateway.listeners.device_log import DeviceLog
from gateway.listeners.serial_port import SerialPort
from gateway.listeners.stream_port import CLOSE_GRACE_S
from gateway.logs import about
from gateway.port import Port, Visitor
from gateway.signals import Signal
from wire.link import Link, LinkData, LinkDown, LinkLog, LinkUp

READ_MOST = 4096
NOISE_LEAST = 512  # bytes that are no frames; fewer come where a port is opened, or a frame is spoilt now and then
NOISE_PAUSE_S = 60.0

logger = logging.getLogger(__name__)


class SerialLine:
    """Carries the link over a serial port, for as long as that is there.

    Args:
        device: the open, non-blocking port.
        connect: called with each new stream's port.
        anonymous: whether its client needs no account.
    """

    def __init__(self, device: serial.Serial, connect: Callable[[Port], None], *, anonymous: bool) -> None:
        self._device = device
        self._connect = connect
        self._visitor = Visitor(str(device.name), may_be_anonymous=anonymous)
        self._descriptor: int = device.fileno()
        self._link = Link(random.SystemRandom().getrandbits(32))
        self._log = DeviceLog(str(device.name))
        self._port: SerialPort | None = None
        self._unwritten = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._last_moment: asyncio.TimerHandle | None = None  # of a stream that the broker has ended
        self._none_ends = Signal()
        self._none_ends.set()
        self._loop = asyncio.get_running_loop()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self.heard = False  # whether anything ever came
        self._noise_said = 0  # of the bytes that were no frames
        self._noise_next_s = 0.0

    async def run(self) -> None:
        """Carries bytes until it is cancelled. Raises OSError when the port vanishes."""
        self._loop.add_reader(self._descriptor, self._read)
        self._link.open(self._now_ms())
        self.advance()
        try:
            await self._gone
        finally:
            self._close()

    def end_stream(self) -> None:
        """Opens the next stream once the device has all of this one, or takes too long for it."""
        self._none_ends.clear()
        self._last_moment = self._loop.call_later(CLOSE_GRACE_S, self._begin_anew)
        self.advance()

    async def wait_for_last_words(self) -> None:
        """Waits until no stream is on its way to its end."""
        await self._none_ends.wait()

    def _begin_anew(self) -> None:
        self._end_port()
        self._link.open(self._now_ms())
        self.advance()

    def advance(self) -> None:
        """Does all that can be done now: events, bytes to send, the line, the timer."""
        if self._gone.done():
            return
        try:
            self._handle_events()
            self._fill()
        except OSError as error:
            self._lose(error)
        if self._last_moment is not None and self._has_said_all():
            self._begin_anew()
        self._arm_timer()

    def _has_said_all(self) -> bool:
        """Whether the device has acknowledged all bytes of the stream."""
        is_sent = not (self._unwritten or (self._port and self._port.outgoing))
        return is_sent and self._link.next_timer_ms() is None

    def _handle_events(self) -> None:
        while not (self._port and self._port.full) and (event := self._link.next_event()) is not None:
            match event:
                case LinkUp():
                    logger.info("serial port %s: link up", self._device.name)
                    self._end_port()
                    self._port = SerialPort(self, self._visitor)
                    self._connect(self._port)
                case LinkData() if self._port:
                    self._port.feed(event.data)
                case LinkDown():
                    logger.info("serial port %s: link down: %s", self._device.name, event.text)
                    self._end_port()
                case LinkLog():
                    self._log.write(event.data, self._loop.time())

    def _fill(self) -> None:
        """Moves bytes from the port through the link, as far as the link and the line take them."""
        while not self._unwritten:
            if self._port and (room := self._link.send_room) and self._port.outgoing:
                self._link.send(self._port.outgoing[:room], self._now_ms())
                del self._port.outgoing[:room]
                self._port.note_sent()
            self._unwritten += self._link.data_to_send()
            if not self._unwritten:
                return
            self._write()

    def _write(self) -> None:
        try:
            while self._unwritten:
                del self._unwritten[: os.write(self._descriptor, self._unwritten)]
        except BlockingIOError:
            self._loop.add_writer(self._descriptor, self._writable)

    def _writable(self) -> None:
        self._loop.remove_writer(self._descriptor)
        try:
            self._write()
        except OSError as error:
            self._lose(error)
        self.advance()

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, READ_MOST)
            if not data:
                raise OSError("hung up")
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(error)
            return
        self.heard = True
        self._link.receive_data(data, self._now_ms())
        self._note_noise()
        self.advance()

    def _note_noise(self) -> None:
        noise = self._link.damaged_bytes - self._noise_said
        if noise >= NOISE_LEAST and self._loop.time() >= self._noise_next_s:
            self._noise_said += noise
            self._noise_next_s = self._loop.time() + NOISE_PAUSE_S
            reason = "expected a device's link at this speed: is it another program, or another baud rate?"
            logger.warning(
                "no frames on a serial line", extra=about(peer=self._device.name, bytes=noise, reason=reason)
            )

    def _lose(self, error: OSError) -> None:
        self._loop.remove_reader(self._descriptor)
        if not self._gone.done():
            self._gone.set_exception(error)

    def _arm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # While the line takes nothing, asking again would only pile up questions.
        timer_ms = None if self._unwritten else self._link.next_timer_ms()
        if timer_ms is not None and not self._gone.done():
            self._timer = self._loop.call_at(timer_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._link.handle_timer(self._now_ms())
        self.advance()

    def _end_port(self) -> None:
        if self._last_moment is not None:
            self._last_moment.cancel()
            self._last_moment = None
        self._none_ends.set()
        if self._port is not None:
            self._port.end()
            self._port = None

    def _close(self) -> None:
        self._end_port()
        self._link.close()
        with contextlib.suppress(OSError):
            os.write(self._descriptor, self._unwritten + self._link.data_to_send())
        self._loop.remove_reader(self._descriptor)
        self._loop.remove_writer(self._descriptor)
        if self._timer is not None:
            self._timer.cancel()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
