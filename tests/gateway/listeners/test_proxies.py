"""Proxies in front of a listener: whose word on the client's address counts, and what a bad one comes to."""

import asyncio
import contextlib
import ipaddress
import random
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gateway.config.load import load
from gateway.config.schema import GatewayConfig, LimitsConfig, StoreConfig, TcpConfig, TlsConfig, WebSocketConfig
from gateway.listeners import proxy_header
from gateway.listeners.connection_limits import ConnectionLimits
from gateway.listeners.proxies import Proxies, forwarded_for
from gateway.listeners.proxy_header import REST_MAX, SIGNATURE, ProxyHeaderError
from host.errors import ConfigError
from tests.gateway.listeners.host import LONG_S, EchoHost, Host, hosting, port_number
from tests.gateway.support import reasons_of
from tools.lab.testing.certificates import Authority

Run = Callable[[Coroutine[Any, Any, None]], None]

PROXY, OTHER = "127.0.0.2", "127.0.0.3"
UPGRADE = (
    "GET /mqtt HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
IPV4, IPV6 = 0x11, 0x21


def header(client: str = "192.0.2.7", port: int = 4711, more: bytes = b"") -> bytes:
    """The header that a proxy sends for a client, with additions behind the addresses."""
    address = ipaddress.ip_address(client)
    rest = address.packed + bytes(len(address.packed)) + struct.pack(">HH", port, 1883) + more
    return start(0x21, IPV4 if address.version == 4 else IPV6, len(rest)) + rest


def start(command: int, family: int, length: int) -> bytes:
    return SIGNATURE + struct.pack(">BBH", command, family, length)


@contextlib.asynccontextmanager
async def line(
    host: Host, source: str = PROXY, first: bytes = b""
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_number(host), local_addr=(source, 0))
    writer.write(first)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def answer(reader: asyncio.StreamReader, size: int) -> bytes:
    return await asyncio.wait_for(reader.readexactly(size), LONG_S)


async def ends(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(), LONG_S) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    ("client", "host_name", "peer"),
    [
        ("192.0.2.7", "192.0.2.7", "192.0.2.7:4711"),
        ("2001:db8::7", "2001:db8::7", "[2001:db8::7]:4711"),
        ("::ffff:192.0.2.7", "192.0.2.7", "192.0.2.7:4711"),
    ],
)
async def test_a_listed_proxys_header_names_the_client(client: str, host_name: str, peer: str) -> None:
    config = TcpConfig(port=0, proxy_from=("127.0.0.2/32", "10.0.0.0/8"))
    async with (
        hosting(config, kind=EchoHost) as host,
        line(host, first=header(client, more=b"\x04\x00\x01\x00") + b"!mqtt") as (reader, _),
    ):
        port = await host.next_port()
        assert (port.visitor.host, port.peer) == (host_name, peer)
        assert await answer(reader, 5) == b"!mqtt"


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_the_header_comes_before_tls(tmp_path: Path, run: Run) -> None:
    run(over_tls(tmp_path))


async def over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.server()
    tls = TlsConfig(str(certificate), str(key))
    async with (
        hosting(TcpConfig(port=0, proxy_from=(PROXY,), tls=tls), kind=EchoHost) as host,
        line(host, first=header()) as (reader, writer),
    ):
        context = ssl.create_default_context(cafile=str(authority.path))
        await writer.start_tls(context, server_hostname="127.0.0.1")
        writer.write(b"!over TLS")
        assert await answer(reader, 9) == b"!over TLS"
        assert (await host.next_port()).visitor.host == "192.0.2.7"


async def test_the_header_comes_before_websocket() -> None:
    async with (
        hosting(WebSocketConfig(port=0, proxy_from=(PROXY,))) as host,
        line(host, first=header() + f"{UPGRADE}X-Forwarded-For: 203.0.113.1\r\n\r\n".encode()),
    ):
        port = await host.next_port()
        assert (port.visitor.host, port.peer) == ("192.0.2.7", "192.0.2.7:4711")


@pytest.mark.parametrize(
    "first",
    [
        start(0x20, 0x00, 0),  # LOCAL: the proxy looks whether the gateway is well
        start(0x20, 0xFF, 5) + b"extra",
        start(0x21, 0x00, 0),  # UNSPEC
        start(0x21, 0x31, 216) + bytes(216),  # the client is at a Unix socket
    ],
)
async def test_a_connection_of_the_proxy_itself_has_the_proxys_address(first: bytes) -> None:
    async with (
        hosting(TcpConfig(port=0, proxy_from=(PROXY,)), kind=EchoHost) as host,
        line(host, first=first + b"!well?") as (reader, _),
    ):
        assert await answer(reader, 6) == b"!well?"
        assert (await host.next_port()).visitor.host == PROXY


async def test_a_header_from_an_address_that_is_not_listed_is_not_believed() -> None:
    async with (
        hosting(TcpConfig(port=0, proxy_from=(PROXY,)), kind=EchoHost) as host,
        line(host, OTHER, header()) as (reader, _),
    ):
        assert (await host.next_port()).visitor.host == OTHER
        assert await answer(reader, len(header())) == header()  # for a broker it is no MQTT


async def takes_only_the_next_client(host: Host) -> None:
    """A client behind a proxy gets to the broker, and no connection before it has got there."""
    async with line(host, first=header()):
        assert (await host.next_port()).visitor.host == "192.0.2.7"
    assert not host.ports


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"\x10\x10\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x00\x00", "proxy_from and has no PROXY header"),
        (b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 1883\r\n", "its PROXY header is of version 1, expected version 2"),
        (start(0x31, IPV4, 12) + bytes(12), "its PROXY header is of version 3, expected version 2"),
        (start(0x22, IPV4, 12) + bytes(12), "its PROXY header has the unknown command 2"),
        (start(0x21, 0x12, 12) + bytes(12), "its PROXY header is for no TCP connection: 0x12"),
        (start(0x21, 0x41, 12) + bytes(12), "its PROXY header is for no TCP connection: 0x41"),
        (start(0x21, IPV4, 11) + bytes(11), "its PROXY header has 11 bytes for addresses, expected 12"),
        (start(0x21, IPV6, 12) + bytes(12), "its PROXY header has 12 bytes for addresses, expected 36"),
        (start(0x21, IPV4, 65535), "its PROXY header has 65535 bytes after the first 16, expected 2048 at most"),
    ],
)
async def test_a_listed_proxy_without_a_header_that_can_be_used_is_refused(
    first: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with hosting(TcpConfig(port=0, proxy_from=(PROXY,))) as host:
        async with line(host, first=first) as (reader, _):
            assert await ends(reader)
        (found,) = reasons_of(caplog)
        assert found.endswith(reason)
        await takes_only_the_next_client(host)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_proxy_that_looks_whether_the_gateway_is_well_comes_to_no_broker_and_no_log(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run(look())
    assert reasons_of(caplog) == []


async def look() -> None:
    """HAProxy sends a header that names no client, and resets the connection; others send nothing at all."""
    at_once = struct.pack("ii", 1, 0)
    async with hosting(TcpConfig(port=0, proxy_from=(PROXY,))) as host:
        for first in (b"", start(0x20, 0, 0)[:7], start(0x20, 0, 0)):
            async with line(host, first=first) as (reader, writer):
                writer.write_eof()
                assert await ends(reader)
            async with line(host, first=first) as (_, writer):
                await writer.drain()
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        await takes_only_the_next_client(host)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_header_that_never_ends_is_dropped_with_the_time_for_the_login(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def begin_a_header() -> None:
        limits = LimitsConfig(connect_timeout_s=1)
        config = TcpConfig(port=0, proxy_from=(PROXY,))
        async with hosting(config, limits=limits) as host, line(host, first=header()[:20]) as (reader, _):
            assert await ends(reader)

    run(begin_a_header())
    assert reasons_of(caplog) == ["it did not log in in time"]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_listener_that_closes_ends_connections_without_a_header(run: Run) -> None:
    async def close() -> None:
        host = Host(GatewayConfig("host", StoreConfig("/nowhere"), [TcpConfig(port=0, proxy_from=(PROXY,))]))
        await host.listeners.open()
        async with line(host, first=header()[:20]) as (reader, _), line(host, first=header()):
            await host.next_port()  # the first connection, which came earlier, waits for the rest of its header
            await host.close()
            assert await ends(reader)

    run(close())


async def test_connections_through_a_proxy_count_for_their_clients(caplog: pytest.LogCaptureFixture) -> None:
    limits = LimitsConfig(connections_per_address=1)
    async with hosting(TcpConfig(port=0, proxy_from=(PROXY,)), limits=limits, kind=EchoHost) as host:
        async with contextlib.AsyncExitStack() as stack:
            for client in ("192.0.2.7", "192.0.2.8", "2001:db8::7"):
                reader, _ = await stack.enter_async_context(line(host, first=header(client) + b"!"))
                assert await answer(reader, 1) == b"!"
            reader, _ = await stack.enter_async_context(line(host, first=header("192.0.2.7") + b"!"))
            assert await ends(reader)
            assert reasons_of(caplog) == ["too many connections"]
        async with line(host, first=header("192.0.2.9") + b"!") as (reader, _):
            assert await answer(reader, 1) == b"!"


async def test_the_limits_forget_connections_that_have_moved() -> None:
    limits = ConnectionLimits(LimitsConfig(connections_per_address=1))
    ends = [one for _ in range(4) for one in socket.socketpair()]
    with contextlib.ExitStack() as stack:
        for one in ends:
            stack.enter_context(one)
        for _ in range(2):  # if something stayed behind, the second round would have no room
            first = limits.admit(ends[0], PROXY, PROXY)
            assert first is not None and first.move("192.0.2.7", "192.0.2.7:1") and first.peer == "192.0.2.7:1"
            first.note_admitted()
            second = limits.admit(ends[2], PROXY, PROXY)
            assert second is not None and not second.move("192.0.2.7", "192.0.2.7:2")
            assert not second.move("192.0.2.8", "192.0.2.8:2")  # it has ended
            stranger = limits.admit(ends[4], "192.0.2.8", "192.0.2.8:1")
            third = limits.admit(ends[6], PROXY, PROXY)
            assert third is not None and third.move("192.0.2.8", "192.0.2.8:2")  # a stranger makes room
            assert stranger is not None and not stranger.move("192.0.2.9", "192.0.2.9:1")
            third.leave()
            first.leave()
            await asyncio.wait_for(limits.wait_until_empty(LONG_S), LONG_S)


async def test_a_header_in_pieces_is_read_to_its_end_and_no_further(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(50):
        bits = chance.choice((32, 128))
        kind = ipaddress.IPv4Address if bits == 32 else ipaddress.IPv6Address
        client, port = str(kind(chance.getrandbits(bits))), chance.randrange(65536)
        data = header(client, port, chance.randbytes(chance.choice((0, 0, 7, REST_MAX - 36)))) + b"MQTT"
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            reading = asyncio.create_task(proxy_header.read(ours))
            while data:
                size = chance.choice((1, 3, 16, 500))
                theirs.send(data[:size])
                data = data[size:]
                await asyncio.sleep(0)
            assert await asyncio.wait_for(reading, LONG_S) == (client, port)
            assert ours.recv(100) == b"MQTT"


def test_no_bytes_end_the_parser_otherwise_than_in_words(seed: int) -> None:
    chance = random.Random(seed)
    models = [header(), header("2001:db8::7"), start(0x20, 0, 0), start(0x21, 0x31, 216) + bytes(216)]
    outcomes = set()
    for _ in range(20_000):
        data = bytearray(chance.choice(models))
        for _ in range(chance.randrange(4)):
            data[chance.choice((12, 13, 14, 15, chance.randrange(len(data))))] = chance.randrange(256)
        try:
            length = proxy_header.length_of_rest(bytes(data[:16]))
            assert length <= REST_MAX
            found = proxy_header.client_in(bytes(data[:16]), bytes(data[16:]).ljust(length, b"\0")[:length])
        except ProxyHeaderError as error:
            outcomes.add(str(error)[:30])
        else:
            outcomes.add(type(found).__name__)
            assert found is None or (ipaddress.ip_address(found[0]) and 0 <= found[1] <= 65535)
    assert {"tuple", "NoneType"} < outcomes and len(outcomes) >= 6


TRUSTED = Proxies(("127.0.0.2", "10.0.0.0/8", "2001:db8:1::/48"))


@pytest.mark.parametrize(
    ("headers", "client"),
    [
        ([], None),
        (["192.0.2.7"], "192.0.2.7"),
        (["198.51.100.1, 192.0.2.7"], "192.0.2.7"),  # the client's own word comes first
        (["rubbish,192.0.2.7 , 10.1.2.3"], "192.0.2.7"),
        (["198.51.100.1", "192.0.2.7, 10.1.2.3", "2001:db8:1::5"], "192.0.2.7"),
        (["10.1.2.4,10.1.2.3"], "10.1.2.4"),
        (["192.0.2.7:4711"], "192.0.2.7"),
        (["[2001:db8::7]:4711"], "2001:db8::7"),
        (["[2001:db8::7]"], "2001:db8::7"),
        (["2001:db8::7"], "2001:db8::7"),
        (["::ffff:10.1.2.3"], "10.1.2.3"),
    ],
)
def test_the_last_address_that_is_no_proxys_is_the_client(headers: list[str], client: str | None) -> None:
    assert forwarded_for(headers, TRUSTED) == client


@pytest.mark.parametrize("entry", ["unknown", "192.0.2.7, ", "192.0.2.7:", "[::1", "192.0.2", "1" * 5000, "a,10.0.0.1"])
def test_an_entry_that_is_no_address_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="does not appear to be an IPv4 or IPv6 address"):
        forwarded_for([entry], TRUSTED)


def test_a_long_way_through_proxies_is_refused_before_it_costs_time() -> None:
    assert forwarded_for(["192.0.2.7" + 19 * ",10.0.0.1"], TRUSTED) == "192.0.2.7"
    for headers in (["192.0.2.7" + 20 * ",10.0.0.1"], ["10.0.0.1"] * 21):
        with pytest.raises(ValueError, match="more than 20 proxies"):
            forwarded_for(headers, TRUSTED)


async def test_a_websocket_has_the_address_that_a_listed_proxy_forwards(caplog: pytest.LogCaptureFixture) -> None:
    limits = LimitsConfig(connections_per_address=2)
    config = WebSocketConfig(port=0, forwarded_from=(PROXY, "10.0.0.0/8"))
    async with hosting(config, limits=limits) as host, contextlib.AsyncExitStack() as stack:

        async def connect(source: str, forwarded: str) -> asyncio.StreamReader:
            lines = f"X-Forwarded-For: {forwarded}\r\n" if forwarded else ""
            return (await stack.enter_async_context(line(host, source, f"{UPGRADE}{lines}\r\n".encode())))[0]

        for source, forwarded, seen in [
            (PROXY, "192.0.2.7", "192.0.2.7"),
            (PROXY, "198.51.100.1, 2001:db8::7, 10.1.2.3", "2001:db8::7"),
            (PROXY, "", PROXY),
            (OTHER, "192.0.2.7", OTHER),
            (PROXY, "192.0.2.7", "192.0.2.7"),
        ]:
            await connect(source, forwarded)
            port = await host.next_port()
            assert port.visitor.host == seen
            port.note_admitted()
        assert await ends(await connect(PROXY, "192.0.2.7"))
        reader = await connect(PROXY, "unknown")
        assert b" 400 " in await asyncio.wait_for(reader.readuntil(b"\r\n"), LONG_S)
        assert not host.ports
    assert reasons_of(caplog) == ["too many connections", "its X-Forwarded-For has no IP address of a client"]


MINIMAL = 'name = "gateway"\n[store]\npath = "store"\n[[listener]]\nkind = "websocket"\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            'proxy_from = ["10.0.0.1/8"]\n',
            '6: listener[0].proxy_from: 10.0.0.1/8 has host bits set, expected an IP address or a network such as "10',
        ),
        (
            'allow_anonymous = true\nforwarded_from = ["proxy.example.org"]\n',
            "7: listener[0].forwarded_from: 'proxy.example.org' does not appear to be an IPv4 or IPv6 network, ",
        ),
        (
            'forwarded_from = ["127.0.0.1"]\n',
            "6: listener[0].forwarded_from: others connect through a proxy: expected accounts, tls.client_ca, or allow",
        ),
    ],
)
def test_what_is_wrong_with_the_proxies_of_a_configuration_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(MINIMAL + text)
    with pytest.raises(ConfigError) as error:
        load(path)
    assert str(error.value).startswith(f"{path}:{complaint}")
