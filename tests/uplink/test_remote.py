"""The line to the next broker, which may be anybody: what it costs the gateway has bounds."""

import asyncio
import logging
import socket
import struct
import threading
import time
from pathlib import Path

import pytest
import uvloop

from gateway.message import Message
from tests.support.scripted_broker import scripted_broker
from tests.uplink.support import append, opened, raw_broker, route_config, running, serving, until
from uplink.connect.reading import IDLE_PER_S
from uplink.connect.remote import MAXIMUM_PACKET_SIZE, Remote
from uplink.route import Route
from wire.bulk.connection import BulkClientConnection
from wire.codec.connect import Connect
from wire.codec.packets import Connack, Puback
from wire.primitives import encode_varint
from wire.properties import MAXIMUM_PACKET_SIZE as MAXIMUM_PACKET_SIZE_PROPERTY
from wire.properties import MAXIMUM_QOS, USER_PROPERTY

PINGRESP = b"\xd0\0"
TURN_MAX_S = 0.1  # of the processor's time; a slice is 5 ms


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_timer_that_is_late_ends_no_connection(run) -> None:
    """After a stall of the machine, say."""

    class LateClient(BulkClientConnection):
        def next_timer_ms(self) -> int:
            return 1

    async def scenario() -> None:
        async with scripted_broker() as broker:
            client = LateClient(Connect("gateway-1"))
            connected = asyncio.get_running_loop().create_future()
            remote = Remote(client, connected.set_result)
            await asyncio.get_running_loop().create_connection(lambda: remote, "127.0.0.1", broker.port)
            await connected
            for number in range(2):
                client.publish("telemetry/a", b"%d" % number, qos=0)
                remote.flush()
            while not broker.publishes or len(broker.publishes[0]) < 2:
                await asyncio.sleep(0)
            assert not remote.ended.done()
            remote.close("the end")

    run(scenario())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_what_is_sent_after_the_connection_was_lost_goes_nowhere_and_raises_nothing(run) -> None:
    async def scenario() -> None:
        async with scripted_broker() as broker:
            client = BulkClientConnection(Connect("gateway-1"))
            connected = asyncio.get_running_loop().create_future()
            remote = Remote(client, connected.set_result)
            await asyncio.get_running_loop().create_connection(lambda: remote, "127.0.0.1", broker.port)
            await connected
            broker.drop_clients()
            await remote.ended
            client.publish("telemetry/a", b"1")
            remote.flush()
            remote.close("the end")

    run(scenario())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_route_that_is_told_to_end_in_the_moment_in_which_its_broker_accepts_it_ends(
    run, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy loop may read the CONNACK before the route goes on, and uvloop closes such a line itself."""
    server = socket.create_server(("127.0.0.1", 0))
    answered = threading.Event()

    def serve() -> None:
        with server, server.accept()[0] as line:
            line.recv(65_536)
            line.sendall(Connack(False).encode())
            answered.set()
            while line.recv(65_536):
                pass

    async def scenario() -> None:
        async with opened(tmp_path) as log:
            task = asyncio.create_task(Route(route_config(port), "gateway-1", log).run())
            begin, read = Remote.connection_made, Remote.data_received

            def begin_late(self: Remote, transport: asyncio.BaseTransport) -> None:
                begin(self, transport)
                assert answered.wait(10)

            def read_and_end(self: Remote, data: bytes) -> None:
                read(self, data)
                task.cancel()

            monkeypatch.setattr(Remote, "connection_made", begin_late)
            monkeypatch.setattr(Remote, "data_received", read_and_end)
            ended, _ = await asyncio.wait({task}, timeout=10)
            assert ended == {task}

    port = server.getsockname()[1]
    thread = threading.Thread(target=serve)
    thread.start()
    run(scenario())
    thread.join()
    assert "unexpected failure" not in caplog.text


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it may be no MQTT broker: packet type 4 has flags 0x8"),
        (b"", "no CONNACK came: the broker closed the connection"),
        (None, "no CONNACK came: Connection reset by peer"),
    ],
    ids=["HTTP", "an end", "a reset"],
)
async def test_a_server_that_is_no_broker_is_told_from_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, answer: bytes | None, said: str
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        if answer is None:
            line = writer.get_extra_info("socket")
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.write(answer or b"")
        writer.close()

    async with raw_broker(talk) as port, opened(tmp_path) as log, running(log, route_config(port)):
        await until(lambda: said in caplog.text)


async def test_a_route_tells_the_broker_how_large_a_packet_it_takes(tmp_path: Path) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log, running(log, route_config(broker.port)):
        await until(lambda: bool(broker.connects))
    assert broker.connects[0].properties[MAXIMUM_PACKET_SIZE_PROPERTY] == MAXIMUM_PACKET_SIZE


@pytest.mark.parametrize(
    "packet",
    [
        Connack(False, 0, {USER_PROPERTY: [("n", "v" * 1000)] * 5000}).encode(),
        b"\x20" + encode_varint(250_000_000),
        b"\x40" + encode_varint(250_000_000),
    ],
    ids=["CONNACK", "the beginning of a CONNACK", "the beginning of a PUBACK"],
)
async def test_a_packet_that_is_larger_than_that_ends_the_connection_when_its_length_has_come(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, packet: bytes
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.write(packet)

    caplog.set_level(logging.WARNING)
    async with raw_broker(talk) as port, opened(tmp_path) as log, running(log, route_config(port)):
        await until(lambda: f"bytes; {MAXIMUM_PACKET_SIZE} is the most" in caplog.text)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("flood", [PINGRESP, Puback(9).encode()], ids=["PINGRESP", "PUBACK"])
def test_packets_that_answer_nothing_are_read_slowly_and_in_turn_with_other_work(run, tmp_path, flood: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.write(Connack(False).encode())
        await reader.read(65_536)
        writer.write(flood * (3 * IDLE_PER_S) + Puback(1).encode())

    async def scenario() -> None:
        longest_s = 0.0
        async with raw_broker(talk) as port, opened(tmp_path) as log:
            route = Route(route_config(port), "gateway-1", log)
            await append(log, range(1, 2))
            started_s = time.monotonic()
            async with serving(route):
                while not route.queue.state.acknowledged_ms:
                    before_s = time.thread_time()
                    await asyncio.sleep(0.001)  # to spin would take the processor from other tests for all the time
                    longest_s = max(longest_s, time.thread_time() - before_s)
        assert time.monotonic() - started_s >= 2.0
        assert longest_s < TURN_MAX_S

    run(scenario())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_message_that_takes_longer_on_a_slow_line_than_the_retry_interval_goes_once(run, tmp_path: Path) -> None:
    connections: list[int] = []
    payload = bytes(1_500_000)

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(0)
        await reader.read(100)
        writer.write(Connack(False, 0, {MAXIMUM_QOS: 1}).encode())
        while connections[-1] < len(payload):
            connections[-1] += len(await reader.read(50_000))
            await asyncio.sleep(0.1)  # half a megabyte a second
        writer.write(Puback(1).encode())

    async def scenario() -> None:
        async with raw_broker(slowly, buffer_bytes=65_536) as port, opened(tmp_path) as log:
            route = Route(route_config(port, retry_interval_s=1), "gateway-1", log)
            async with serving(route):
                await log.submit([Message("telemetry/a", payload, qos=1)])
                await until(lambda: route.queue.state.acknowledged_ms > 0)
        assert len(connections) == 1

    run(scenario())
