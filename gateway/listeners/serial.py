"""A listener for a serial line: one device at its end, and a serial port that may come and go."""

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Callable

import serial

from gateway.config.schema import SerialConfig
from gateway.listeners.serial_port import SerialDevice
from gateway.listeners.stream import CLOSE_GRACE_S
from gateway.log_fields import about
from gateway.loop.signals import Signal
from gateway.port import Port, Visitor
from wire.link import Link, LinkData, LinkDown, LinkLog, LinkUp

READ_MOST = 4096
NOISE_LEAST = 512  # bytes that are not frames; fewer come when a port is opened, or by a corrupt frame now and then
NOISE_PAUSE_S = 60.0
RECEIVED_MAX = 64 * 1024  # bytes that the broker has not read; beyond it the link gives the device no credit
BACKLOG_DRAINED = 1024  # bytes; on a slow line few bytes should wait before the next ones
LINES_AT_ONCE = 20
LINE_INTERVAL_S = 1.0  # on average: a device must not fill the disk with log lines

logger = logging.getLogger(__name__)


class SerialListener:
    """Keeps one serial port open, and opens it again after it was missing.

    Args:
        config: the serial port.
        anonymous: whether a client without an account may log in here.
        connect: called with the port of each stream of the link.

    """

    def __init__(self, config: SerialConfig, *, anonymous: bool, connect: Callable[[Port], None]) -> None:
        self._device = SerialDevice(config.device, config.baud)
        self._anonymous = anonymous
        self._connect = connect
        self._task: asyncio.Task[None] | None = None
        self._line: SerialLine | None = None

    @property
    def problem(self) -> str:
        """Why the port cannot be used now; "" while it is open."""
        return self._device.problem

    async def open(self) -> None:
        """Begins to use the serial port, and waits for it if it is missing."""
        self._task = asyncio.get_running_loop().create_task(self._device.keep_open(self._serve))

    async def close(self) -> None:
        """Ends the link and closes the serial port when the device has what was sent last."""
        if self._task is not None:
            if self._line is not None:
                await self._line.wait_for_last_words()
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def reload(self) -> None:
        """Does nothing: a serial line has no files to read again."""

    async def _serve(self, port: serial.Serial) -> None:
        """Runs the link over an open port. Raises OSError when the port vanishes."""
        self._line = SerialLine(port, self._connect, anonymous=self._anonymous)
        try:
            await self._line.run()
        finally:
            if self._line.heard:
                self._device.note_heard()
            self._line = None


class SerialLine:
    """Runs the link over a serial port while that is there.

    Args:
        device: the open, non-blocking port.
        connect: called with the port of each new stream.
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
        self.heard = False  # whether any byte has come
        self._noise_said = 0  # bytes that were not frames, as far as they were logged
        self._noise_next_s = 0.0

    async def run(self) -> None:
        """Runs until it is cancelled. Raises OSError when the port vanishes."""
        self._loop.add_reader(self._descriptor, self._read)
        self._link.open(self._now_ms())
        self.advance()
        try:
            await self._gone
        finally:
            self._close()

    def end_stream(self) -> None:
        """Opens the next stream when the device has all bytes of this one, or after CLOSE_GRACE_S."""
        self._none_ends.clear()
        self._last_moment = self._loop.call_later(CLOSE_GRACE_S, self._begin_anew)
        self.advance()

    async def wait_for_last_words(self) -> None:
        """Waits until no stream is about to end."""
        await self._none_ends.wait()

    def _begin_anew(self) -> None:
        self._end_port()
        self._link.open(self._now_ms())
        self.advance()

    def advance(self) -> None:
        """Handles events, sends what the link and the line take, and sets the timer."""
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
        """Moves bytes from the port through the link to the line, as far as they take them."""
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
        # While the line takes nothing the link must not queue more frames.
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


class SerialPort:
    """One stream of the link: the port of a client until the link goes down."""

    def __init__(self, line: "SerialLine", visitor: Visitor) -> None:
        self.peer = visitor.host
        self.visitor = visitor
        self.outgoing = bytearray()
        self._line = line
        self._received = bytearray()
        self._ended = False
        self._changed = asyncio.Event()

    async def receive(self) -> bytes:
        while not self._received and not self._ended:
            await self._change()
        data = bytes(self._received)
        self._received.clear()
        self._line.advance()
        return data

    def unpack(self, data: bytes) -> tuple[bytes]:
        return (data,)

    def send(self, data: bytes) -> None:
        if not self._ended:
            self.outgoing += data
            self._line.advance()

    @property
    def backlog(self) -> int:
        return len(self.outgoing)

    async def drain(self) -> None:
        while self.backlog > BACKLOG_DRAINED and not self._ended:
            await self._change()
        if self._ended:
            raise ConnectionResetError("the link is down")

    def note_admitted(self) -> None:
        """Does nothing: a serial line has one client, and no limits for unauthenticated ones."""

    def close(self) -> None:
        if not self._ended:
            self.end()
            self._line.end_stream()

    def end(self) -> None:
        """Ends the port when the link has ended the stream."""
        self._ended = True
        self._changed.set()

    @property
    def full(self) -> bool:
        """Whether RECEIVED_MAX bytes wait for the broker."""
        return len(self._received) >= RECEIVED_MAX and not self._ended

    def feed(self, data: bytes) -> None:
        """Takes bytes of the link."""
        if not self._ended:
            self._received += data
            self._changed.set()

    def note_sent(self) -> None:
        """Notes that the link has taken bytes of ``outgoing``."""
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class DeviceLog:
    """Logs a device's log lines up to a rate, and counts the others.

    Args:
        name: of the serial port.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._allowance = float(LINES_AT_ONCE)
        self._updated_s = 0.0
        self._omitted = 0

    def write(self, line: bytes, now_s: float) -> None:
        """Logs one line; ``now_s`` is the time of a monotonic clock."""
        self._allowance = min(LINES_AT_ONCE, self._allowance + (now_s - self._updated_s) / LINE_INTERVAL_S)
        self._updated_s = now_s
        if self._allowance < 1:
            self._omitted += 1
            return
        self._allowance -= 1
        if self._omitted:
            logger.warning("serial port %s: %d lines of the device left out", self._name, self._omitted)
            self._omitted = 0
        logger.info("serial port %s: the device says %r", self._name, line.decode(errors="replace"))
