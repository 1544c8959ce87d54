"""A TCP path that can be cut, slowed, silenced and mended, for the demo, torture and the tests.

A client that is to reach ``(host, port)`` connects to the link's own port instead. A cut resets the connections that
are open, with whatever bytes were on the way, and refuses new ones, as a router without power does.
"""

import asyncio
import socket
import struct
from collections.abc import Callable

from tools.lab.testing.ports import free_port

Tap = Callable[[object, bool, bytes], None]

BOTH_WAYS = (True, False)  # from the near end, and from the far end
ACCEPT_TURNS = 4  # of the event loop, from a connection that is accepted to its protocol
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class NetworkLink:
    """One cuttable path to a TCP server.

    Args:
        host: name or address of the far end.
        port: TCP port of the far end.
        tap: called with all that goes through: which connection, whether it comes from the near end, the bytes.

    Attributes:
        far_end: host and port to which new connections lead.
        port: where it listens on the loopback address while it is open.
    """

    def __init__(self, host: str, port: int, tap: Tap | None = None) -> None:
        self.far_end = (host, port)
        self._tap = tap
        self._bytes_left: int | None = None
        self._flips_after: int | None = None
        self._slow_ways: tuple[bool, ...] = ()
        self._held: dict[_End, bytearray] = {}  # by the end at which the bytes came
        self._server: asyncio.Server | None = None
        self.ends: set[_End] = set()
        self.connects: set[asyncio.Task[None]] = set()
        self.port = free_port()
        self._turning = asyncio.Lock()  # its port is free only when a cut has ended

    async def open(self) -> int:
        """Listens on its port, unless it does so already, and returns it."""
        loop = asyncio.get_running_loop()
        async with self._turning:
            if self._server is None:
                self._server = await loop.create_server(lambda: _NearEnd(self), "127.0.0.1", self.port)
        return self.port

    async def cut(self) -> None:
        """Resets every connection and refuses new ones until ``open`` is called again."""
        async with self._turning:
            server, self._server = self._server, None
            if server is not None:
                for listening in server.sockets:
                    asyncio.get_running_loop().remove_reader(listening.fileno())
                for _ in range(ACCEPT_TURNS):  # asyncio leaves open what it is accepting when its server closes
                    await asyncio.sleep(0)
                server.close()
        if self.connects:
            await asyncio.wait(self.connects)
        for end in self.ends:
            end.reset()

    @property
    def is_cut(self) -> bool:
        """Whether nothing goes through."""
        return self._server is None

    def break_after(self, size: int | None) -> None:
        """Resets every connection once when ``size`` more bytes have gone through; None: never. New ones are taken."""
        self._bytes_left = size

    @property
    def break_is_ahead(self) -> bool:
        return self._bytes_left is not None

    def corrupt_after(self, size: int) -> None:
        """Changes one byte once, the first after ``size`` more bytes have come in, at either end."""
        self._flips_after = size

    async def slow(
        self, seconds: float, interval_s: float, size: int | None = None, ways: tuple[bool, ...] = BOTH_WAYS
    ) -> None:
        """For `seconds` lets bytes through only once in an interval, `size` of each connection at most: a line
        with a long delay, or with few bytes a second. An interval longer than all of it is a line that is silent.

        Args:
            ways: the directions that are slow: True from the near end, False from the far one.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        self._slow_ways = ways
        while (left_s := end_s - loop.time()) > 0:
            await asyncio.sleep(min(interval_s, left_s))
            if interval_s <= left_s:
                self._let_through(size)
        self._slow_ways = ()
        self._let_through(None)

    def hold(self, ways: tuple[bool, ...] = BOTH_WAYS) -> None:
        """Lets no byte through in some directions, until the connections are cut."""
        self._slow_ways = ways

    def _let_through(self, size: int | None) -> None:
        for source, held in list(self._held.items()):
            released = bytes(held if size is None else held[:size])
            del held[: len(released)]
            if not held or source not in self.ends:
                del self._held[source]
            if released and source in self.ends:
                self._send_on(source, released)

    def carry(self, source: "_End", data: bytes) -> None:
        """Takes bytes that came at one end, and sends them out at the other as soon as the line lets them through."""
        if self._flips_after is not None:
            data = self._flipped(data, self._flips_after)
        if source in self._held or isinstance(source, _NearEnd) in self._slow_ways:
            self._held.setdefault(source, bytearray()).extend(data)
        else:
            self._send_on(source, data)

    def _flipped(self, data: bytes, after: int) -> bytes:
        if after >= len(data):
            self._flips_after = after - len(data)
            return data
        self._flips_after = None
        return data[:after] + bytes([data[after] ^ 0x55]) + data[after + 1 :]

    def _send_on(self, source: "_End", data: bytes) -> None:
        """Sends bytes that came at one end out at the other."""
        assert source.other is not None
        carried = data if self._bytes_left is None else data[: self._bytes_left]
        if self._tap is not None:
            near = isinstance(source, _NearEnd)
            self._tap(source if near else source.other, near, carried)
        if not source.other.transport.is_closing():  # otherwise asyncio logs each
            source.other.transport.write(carried)
        if self._bytes_left is not None:
            self._bytes_left -= len(carried)
            if not self._bytes_left:
                self._bytes_left = None
                for end in self.ends:
                    end.reset()

    async def connect(self, near: "_NearEnd") -> None:
        """Connects a new near end through to the far one; what cannot be reached resets the near end."""
        try:
            _, far = await asyncio.get_running_loop().create_connection(lambda: _End(self), *self.far_end)
        except OSError:
            near.reset()
            return
        if near not in self.ends:  # it did not wait
            far.reset()
            return
        far.other = near
        near.join(far)


class _End(asyncio.Protocol):
    """One end of one connection; what it receives goes to the other end."""

    transport: asyncio.Transport
    other: "_End | None" = None

    def __init__(self, link: NetworkLink) -> None:
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._link.ends.add(self)

    def reset(self) -> None:
        """Ends the connection with a TCP reset, unless it has ended; what was queued is gone."""
        if self not in self._link.ends:
            return
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self._link.carry(self, data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._link.ends.discard(self)
        if self.other is not None:
            self.other.transport.close()


class _NearEnd(_End):
    """The end to which a client connected; it keeps the bytes that come before the far end is connected."""

    def __init__(self, link: NetworkLink) -> None:
        super().__init__(link)
        self._early = b""

    def join(self, far: _End) -> None:
        """From here on bytes go through."""
        self.other = far
        if self._early:
            self._link.carry(self, self._early)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early += data
        else:
            super().data_received(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._link.is_cut:  # it was accepted before, and comes through only now
            self.reset()
            return
        connect = asyncio.get_running_loop().create_task(self._link.connect(self))
        self._link.connects.add(connect)
        connect.add_done_callback(self._link.connects.discard)
