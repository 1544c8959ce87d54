"""A gateway in the test's own event loop or in a process of its own, and a client with the wire's protocol core."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.broker import Broker
from tests.gateway.serving import configure, running, tcp_port
from tests.support.coroutines import after_each_test
from tools.lab.testing import client as testing
from tools.lab.testing.client import LONG_S
from tools.lab.testing.process import Process
from wire.codec.packets import Publish
from wire.properties import USER_PROPERTY

__all__ = ["configure", "running", "tcp_port"]

Client = testing.Client
ROOT = Path(__file__).parents[2]
_processes: "set[GatewayProcess]" = set()


async def until(condition: Callable[[], Any], what: str) -> None:
    """Waits for a condition that no event signals."""
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {LONG_S} s: {what}"
        await asyncio.sleep(0.005)


async def connected(broker: Broker, name: str = "client", **options: Any) -> Client:
    return await Client(name, **options).connect(tcp_port(broker))


async def all_connected(broker: Broker, *names: str, **client_options: Any) -> list[Client]:
    return [await connected(broker, name, **client_options) for name in names]


async def joined(port: int, name: str, *filters: str, options: int = 1, **client_options: Any) -> Client:
    """A client that is connected to a port and has subscribed to filters."""
    client = await Client(name, **client_options).connect(port)
    await client.subscribe(*filters, options=options)
    return client


async def subscribed(broker: Broker, name: str, *filters: str, options: int = 1, **client_options: Any) -> Client:
    """A connected client of a broker in this process that has subscribed to filters."""
    return await joined(tcp_port(broker), name, *filters, options=options, **client_options)


def user_property(packet: Publish, name: str) -> str | None:
    return dict(packet.properties.get(USER_PROPERTY, ())).get(name)


@after_each_test
async def hang_up() -> None:
    """Ends the processes and the connections that a test has left."""
    for process in list(_processes):
        await process.kill()
    await testing.cut_all()


class GatewayProcess:
    """A gateway in a process of its own, to be killed; ``wrapper`` is a command that runs it."""

    def __init__(self, folder: Path, *wrapper: str) -> None:
        self.port = 0
        self._pid = 0
        program = str(Path(__file__).with_name("process.py"))
        argv = [*wrapper, sys.executable, program, str(folder)]
        self._process = Process("gateway", argv, environment={"PYTHONPATH": str(ROOT)})

    async def start(self) -> None:
        self._process.start()
        _processes.add(self)
        line = await asyncio.to_thread(self._process.says, "listens ", LONG_S)
        self.port, self._pid = (int(word) for word in line.split()[1:])

    async def kill(self) -> None:
        await self._end(signal.SIGKILL)

    async def restart(self) -> None:
        """Kills the gateway and starts it on the same store."""
        await self.kill()
        await self.start()

    async def stop(self) -> int:
        return await self._end(signal.SIGTERM)

    async def ending(self) -> None:
        """Returns when it has begun to end."""
        await asyncio.to_thread(self._process.says, "ends", LONG_S)

    async def _end(self, number: signal.Signals) -> int:
        _processes.discard(self)
        if self._pid:
            os.kill(self._pid, number)
        else:
            self._process.signal(number)
        return (await asyncio.to_thread(self._process.ended, LONG_S))[0]


def reasons_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why connections ended and logins were refused, by the log."""
    abouts = [getattr(record, "about", {}) for record in caplog.records]
    return [about["reason"] for about in abouts if "reason" in about]


def said_of(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """What each line of the log with this event is about."""
    return [getattr(record, "about", {}) for record in caplog.records if record.getMessage() == event]
