"""TCP addresses: one that cannot be bound is named, IPv6 and IPv4 are both served, a broker that closes frees them."""

import asyncio
import socket
from pathlib import Path

import pytest

from gateway.config.schema import TcpConfig
from gateway.errors import ListenError
from tests.gateway.listeners.host import hosting, port_number
from tests.gateway.support import LONG_S, Client, connected, running, subscribed, tcp_port, until
from wire.codec.packets import Disconnect, Puback, Publish


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    async with running(tmp_path / "one") as broker:
        port = tcp_port(broker)
        with pytest.raises(ListenError) as caught:
            async with running(tmp_path / "two", TcpConfig(port=port)):
                pass
        assert str(caught.value) == f"listener tcp 127.0.0.1:{port}: Address already in use"
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


async def test_a_broker_that_has_closed_has_dropped_the_clients_that_stay(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        lingering = socket.create_connection(("127.0.0.1", tcp_port(broker)))
        await until(lambda: broker.counters.connections_opened, "it is there")
    with lingering:
        lingering.settimeout(LONG_S)
        assert lingering.recv(1) == b""
        lingering.send(b"still here")
        with pytest.raises(ConnectionError):  # nothing was left to discard it
            lingering.send(b"still here")


async def test_a_message_that_was_acknowledged_before_the_broker_closes_does_not_come_again(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await subscribed(broker, "client", "a")
        await (await connected(broker, "publisher")).publish("a")
        client.protocol.subscribe([("b", 1)])  # while this one is written, the PUBACK behind it waits
        client.acknowledge(await client.expect(Publish))
    async with running(tmp_path) as broker:
        client = await connected(broker, "client")
        assert client.connack.session_present
        await client.expect_no_message()


async def test_what_has_come_is_acknowledged_before_the_broker_closes(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await Client().connect(tcp_port(broker))
        for number in range(5):
            client.send("a", b"%d" % number, qos=1)
        before = broker.counters.bytes_received
        await until(lambda: broker.counters.bytes_received > before, "the messages are there")
    for _ in range(5):
        await client.expect(Puback)
    assert (await client.expect(Disconnect)).reason_code == 0x8B


@pytest.mark.parametrize(
    ("host", "from_addresses", "known_as"),
    [
        ("::", ["127.0.0.1", "::1"], ["127.0.0.1", "::1"]),
        ("localhost", ["127.0.0.1"], ["127.0.0.1"]),
        ("0.0.0.0", ["127.0.0.1"], ["127.0.0.1"]),
    ],
)
async def test_a_host_is_reached_by_all_its_addresses(
    host: str, from_addresses: list[str], known_as: list[str]
) -> None:
    async with hosting(TcpConfig(host, 0, allow_anonymous=True)) as listening:
        for address, known in zip(from_addresses, known_as, strict=True):
            _, writer = await asyncio.open_connection(address, port_number(listening))
            assert (await listening.next_port()).visitor.host == known
            writer.close()
