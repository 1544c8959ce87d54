"""A real nats-server, and a NATS client over its text protocol.

Source: docs.nats.io, "Client Protocol".
"""

import asyncio
import shutil
from pathlib import Path
from typing import NamedTuple, Self

from tools.lab.testing.client import LONG_S, UnexpectedEvent
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process


class NatsUnavailable(Exception):
    """There is no nats-server here."""


class NatsServer:
    """One server with JetStream and its files in `folder`; it keeps its port over restarts.

    Args:
        lines: more lines of its configuration.
    """

    def __init__(self, folder: Path, lines: str = "", port: int | None = None) -> None:
        found = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin")
        if found is None:
            raise NatsUnavailable("nats-server is not installed (apt install nats-server)")
        folder.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        (folder / "nats.conf").write_text(
            f'host: 127.0.0.1\nport: {self.port}\njetstream {{ store_dir: "{folder}/jetstream" }}\n{lines}\n'
        )
        self._process = Process("nats-server", [found, "-c", str(folder / "nats.conf")], folder / "nats.log")

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when it listens. Raises ProcessFailed with its last words where it ends instead."""
        self._process.start()
        self._process.says("Server is ready")

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def stop(self) -> None:
        """SIGTERM."""
        self._process.stop()


class Message(NamedTuple):
    """A MSG: its subject, the subject for an answer ("" without one), and its payload."""

    subject: str
    reply: str
    payload: bytes


class NatsClient:
    """One client. Every method that waits raises TimeoutError after a minute, UnexpectedEvent if the server says -ERR
    or ends the connection, and OSError."""

    def __init__(self) -> None:
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._subscriptions = 0
        self._waiting: list[Message] = []

    async def connect(self, port: int) -> Self:
        """Connects to a server on the loopback address."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        await self._line()  # INFO
        self._writer.write(b'CONNECT {"verbose":false,"pedantic":false}\r\n')
        await self.sync()
        return self

    def subscribe(self, subject: str) -> int:
        """Subscribes to a subject; returns the number of the subscription."""
        self._subscriptions += 1
        self._writer.write(f"SUB {subject} {self._subscriptions}\r\n".encode())
        return self._subscriptions

    def unsubscribe(self, number: int) -> None:
        """Ends a subscription."""
        self._writer.write(f"UNSUB {number}\r\n".encode())

    def publish(self, subject: str, payload: bytes = b"", reply: str = "") -> None:
        """Publishes a message; `reply` is the subject for its answer."""
        head = " ".join(filter(None, ("PUB", subject, reply, str(len(payload)))))
        self._writer.write(head.encode() + b"\r\n" + payload + b"\r\n")

    async def sync(self) -> None:
        """Returns when the server has handled all that was sent."""
        self._writer.write(b"PING\r\n")
        while (came := await self._next()) is not None:
            self._waiting.append(came)

    async def receive(self) -> Message:
        """Returns the next message."""
        if self._waiting:
            return self._waiting.pop(0)
        while (came := await self._next()) is None:
            pass
        return came

    async def close(self) -> None:
        """Ends the connection."""
        self._writer.close()
        await self._writer.wait_closed()

    async def _next(self) -> Message | None:
        """Returns a message, or None for a PONG."""
        while True:
            line = await self._line()
            match line.split():
                case ["PONG"]:
                    return None
                case ["PING"]:
                    self._writer.write(b"PONG\r\n")
                case ["MSG", subject, _, *reply, size]:
                    payload = await self._reader.readexactly(int(size) + 2)
                    return Message(subject, reply[0] if reply else "", payload[:-2])
                case ["INFO", *_]:  # a server tells again what has changed
                    pass
                case _:
                    raise UnexpectedEvent(f"MSG, PING or PONG expected, got {line!r}")

    async def _line(self) -> str:
        async with asyncio.timeout(LONG_S):
            return (await self._reader.readline()).decode().strip()
