"""An open line whose far end takes nothing any more is given up, and opened again."""

import asyncio
import contextlib
import gc
import socket
from pathlib import Path

import pytest

from gateway.config.connectors import ModbusTcpConfig
from gateway.connectors import wire
from gateway.connectors.wire import TcpFar, Wire
from tests.gateway.connectors.support import configured, connecting
from tests.gateway.support import running, until
from tools.lab.testing.client import LONG_S


async def test_a_far_end_that_takes_no_bytes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "WRITE_TIMEOUT_S", 0.05)
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                near.send(bytes(4096))
        with pytest.raises(OSError, match=r"nothing can be sent: the far end has taken no byte for 0\.05 s"):
            await asyncio.wait_for(Wire(near.fileno()).write(b"a request"), 5)


async def test_a_connection_ends_if_the_far_end_does_not_acknowledge() -> None:
    ended = asyncio.Event()

    async def hang_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(hang_on, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    found: list[int] = []

    async def look(_: Wire) -> None:
        sockets = [one for one in gc.get_objects() if isinstance(one, socket.socket) and one.fileno() >= 0]
        (own,) = [one for one in sockets if is_connected_to(one, port)]
        found.append(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
        await asyncio.Event().wait()

    task = asyncio.create_task(TcpFar(host, port).keep_open(look))
    await until(lambda: found or task.done(), "it is connected")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.wait_for(ended.wait(), LONG_S)
    server.close()
    assert found == [wire.UNACKNOWLEDGED_MS]


def is_connected_to(one: socket.socket, port: int) -> bool:
    with contextlib.suppress(OSError):
        return one.family == socket.AF_INET and bool(one.getpeername()[1] == port)
    return False


@pytest.mark.parametrize("slowly", [False, True])
async def test_a_server_that_sends_without_end_is_told_and_holds_up_nothing(tmp_path: Path, slowly: bool) -> None:
    """Over TCP, bytes that are no answer, all at once or one by one."""

    floods: list[asyncio.Task[None]] = []

    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        floods.append(task)
        try:
            while True:
                writer.write(b"\x00" if slowly else bytes(65_536))
                await writer.drain()
                await asyncio.sleep(0.01 if slowly else 0)
        except ConnectionError:
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(flood, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    unit = {
        "device": "meter",
        "address": 1,
        "interval_s": 0.05,
        "timeout_s": 0.1,
        "value": [{"name": "a", "address": 1}],
    }
    config = configured(ModbusTcpConfig, port=f"tcp://127.0.0.1:{port}", unit=[unit])
    loop = asyncio.get_running_loop()
    async with running(tmp_path) as broker, connecting(broker, config) as connectors:
        await until(lambda: connectors.states()[0].units[0].errors or connectors.states()[0].problem, "it is told")
        began = loop.time()
        for _ in range(20):
            await asyncio.sleep(0)
        assert loop.time() - began < 1
    server.close()
    await asyncio.wait_for(asyncio.gather(*floods), LONG_S)  # each ends with its connection
