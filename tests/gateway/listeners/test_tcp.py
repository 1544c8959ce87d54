"""The TCP listener: an address it cannot have is named, a broker that closes lets go of it."""

import socket
from pathlib import Path

import pytest

from gateway.config import TcpConfig
from gateway.errors import ListenError
from tests.gateway.support import Client, running, tcp_port
from wire.packets import Disconnect


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    async with running(tmp_path / "one") as broker:
        port = tcp_port(broker)
        with pytest.raises(ListenError) as caught:
            async with running(tmp_path / "two", TcpConfig(port=port)):
                pass
        assert str(caught.value) == f"listener tcp 127.0.0.1:{port}: Address already in use"
        assert caught.value.exit_code == 2
        await Client().connect(port)


async def test_when_one_listener_fails_none_stays_open(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        listeners = TcpConfig(port=port), TcpConfig(port=taken.getsockname()[1])
        with pytest.raises(ListenError):
            async with running(tmp_path, *listeners):
                pass
    async with running(tmp_path, TcpConfig(port=port)):
        pass


async def test_a_host_that_is_not_ours_is_named(tmp_path: Path) -> None:
    with pytest.raises(ListenError, match=r"listener tcp 192.0.2.1:0: Cannot assign requested address"):
        async with running(tmp_path, TcpConfig("192.0.2.1", 0, allow_anonymous=True)):
            pass


async def test_clients_are_told_that_the_broker_closes(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await Client().connect(tcp_port(broker))
    assert (await client.expect(Disconnect)).reason_code == 0x8B
