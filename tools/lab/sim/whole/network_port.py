"""The board's serial port over TCP with its modem lines (RFC 2217), which a pseudo-terminal does not have."""

import asyncio
from collections.abc import Callable

from serial.rfc2217 import PortManager


class ModemLines:
    """DTR and RTS of a port, wired to a board's reset and boot pins as on the makers' boards.

    RTS alone holds the chip in reset; DTR alone pulls the boot pin low; both together do nothing.
    """

    def __init__(self, on_change: Callable[[bool, bool], None]) -> None:
        self._dtr = self._rts = False
        self._on_change = on_change

    @property
    def dtr(self) -> bool:
        return self._dtr

    @dtr.setter
    def dtr(self, level: bool) -> None:
        self._dtr = level
        self._tell()

    @property
    def rts(self) -> bool:
        return self._rts

    @rts.setter
    def rts(self, level: bool) -> None:
        self._rts = level
        self._tell()

    def _tell(self) -> None:
        self._on_change(self._rts and not self._dtr, self._dtr and not self._rts)


class PortSettings(ModemLines):
    """What `PortManager` wants of a serial port: settings that it sets and reads."""

    cts = dsr = cd = True
    ri = xonxoff = rtscts = break_condition = False
    bytesize, parity, stopbits = 8, "N", 1
    baudrate = 115200

    def reset_input_buffer(self) -> None:
        """Nothing waits here."""

    def reset_output_buffer(self) -> None:
        """Nothing waits here."""


class NetworkPort:
    """A server for one client at a time at `url`.

    Args:
        on_reset: called with whether the chip is held in reset, and whether its boot pin is low.
    """

    def __init__(self, on_reset: Callable[[bool, bool], None]) -> None:
        self.url = ""
        self._on_reset = on_reset
        self._settings = PortSettings(on_reset)
        self._manager: PortManager | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None
        self._incoming: asyncio.Queue[bytes] = asyncio.Queue()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"rfc2217://127.0.0.1:{port}"

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.hang_up()

    def hang_up(self) -> None:
        """Ends the connection of the client."""
        if self._writer is not None:
            self._writer.transport.abort()

    @property
    def baud(self) -> int | None:
        return self._settings.baudrate

    @property
    def is_open(self) -> bool:
        return self._manager is not None

    async def read(self) -> bytes:
        """Waits for what the client sends."""
        return await self._incoming.get()

    async def write(self, content: bytes) -> None:
        if self._manager is not None and self._writer is not None:
            self._writer.write(b"".join(self._manager.escape(content)))
            try:
                await self._writer.drain()
            except ConnectionError:
                self._manager = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._settings = PortSettings(self._on_reset)
        self._manager = manager = PortManager(self._settings, writer)
        try:
            while content := await reader.read(1024):
                if clean := b"".join(manager.filter(content)):
                    self._incoming.put_nowait(clean)
        except ConnectionError:
            pass
        finally:
            writer.close()
            if self._manager is manager:
                self._manager = None
