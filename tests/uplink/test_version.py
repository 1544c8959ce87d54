"""Which version of MQTT a route speaks, and that MQTT 3.1.1 keeps what a route promises."""

import asyncio
import logging
from pathlib import Path

import pytest

from gateway.message import Message
from tests.support.scripted_broker import scripted_broker
from tests.support.subscriber import subscriber
from tests.uplink.support import append, get, of_3_1_1, opened, route_config, routed, running, until
from tools.lab.testing.mosquitto import mosquitto
from tools.lab.testing.network_link import NetworkLink
from uplink.connect import version
from uplink.connect.remote import MAXIMUM_PACKET_SIZE
from uplink.connect.version import UNANSWERED_MOST
from wire.codec.packets import MQTT_3_1_1, Connack, Publish
from wire.primitives import encode_varint
from wire.reasons import BAD_USER_NAME_OR_PASSWORD, UNSUPPORTED_PROTOCOL_VERSION

CLOSED = b""
UNSUPPORTED = Connack(False, UNSUPPORTED_PROTOCOL_VERSION)
REFUSALS = {
    "the return code of 3.1.1, as from NATS": b"\x20\2\0\1",
    "a success of 3.1.1": b"\x20\2\0\0",
    "its return code in a CONNACK of MQTT 5, as from Moquette": b"\x20\3\0\1\0",
    "the reason code of MQTT 5 in a CONNACK of 3.1.1, as from mosquitto": b"\x20\2\0\x84",
    "the reason code of MQTT 5": UNSUPPORTED.encode(),
    "a close, as from RabbitMQ": CLOSED,
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS.keys())
async def test_a_broker_that_refuses_mqtt_5_in_its_own_way_gets_the_messages_over_3_1_1(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, refusal: bytes
) -> None:
    caplog.set_level(logging.WARNING)
    async with routed(tmp_path, mqtt_5_refusal=refusal) as (broker, log):
        await append(log, range(1, 4))
        await until(lambda: bool(broker.publishes) and len(broker.publishes[-1]) == 3)
        broker.drop_clients()
        await append(log, range(4, 5))
        await until(lambda: broker.publishes[-1][-1:] != [] and broker.publishes[-1][-1].payload == b"4")
    *clean, first, _ = broker.publishes
    assert not any(clean)
    assert [bytes(publish.payload) for publish in first] == [b"1", b"2", b"3"]
    assert broker.refused == (UNANSWERED_MOST + 1 if refusal == CLOSED else 1)
    assert caplog.text.count("it speaks MQTT 3.1.1, so no identities go there") == 1


async def test_a_broker_that_has_spoken_mqtt_5_is_not_asked_for_less_when_it_closes(tmp_path: Path) -> None:
    async with routed(tmp_path) as (broker, log):
        await until(lambda: bool(broker.connects))
        broker.mqtt_5_refusal = CLOSED
        broker.drop_clients()
        await until(lambda: broker.refused > UNANSWERED_MOST)
        broker.mqtt_5_refusal = None
        await append(log, range(1, 2))
        await until(lambda: bool(broker.publishes[-1]))
    assert [bool(publish.properties) for publish in broker.publishes[-1]] == [True]


async def test_a_broker_that_comes_back_behind_a_load_balancer_is_spoken_to_in_mqtt_5(tmp_path: Path) -> None:
    """While the broker is away, the load balancer accepts connections and closes them."""
    async with scripted_broker() as broker:
        connections: list[int] = []

        async def balance(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(1)
            if len(connections) > UNANSWERED_MOST:
                await broker.serve(reader, writer)
            writer.close()

        server = await asyncio.start_server(balance, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with opened(tmp_path) as log, running(log, route_config(port)):
            await append(log, range(1, 2))
            await until(lambda: bool(broker.publishes) and bool(broker.publishes[-1]))
        server.close()
    assert [bool(publish.properties) for publish in broker.publishes[-1]] == [True]


async def test_a_broker_of_3_1_1_is_asked_for_mqtt_5_again_after_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version, "MQTT_5_AGAIN_S", 0.0)
    async with routed(tmp_path, mqtt_5_refusal=UNSUPPORTED.encode()) as (broker, log):
        await until(lambda: len(broker.connects) == 2)
        broker.mqtt_5_refusal = None
        broker.drop_clients()
        await append(log, range(1, 2))
        await until(lambda: bool(broker.publishes[-1]))
    assert [bool(publish.properties) for publish in broker.publishes[-1]] == [True]


async def test_a_broker_that_speaks_mqtt_5_alone_since_its_update_is_reached_again(tmp_path: Path) -> None:
    async with routed(tmp_path, mqtt_5_refusal=UNSUPPORTED.encode()) as (broker, log):
        await until(lambda: len(broker.connects) == 2)
        broker.mqtt_5_refusal, broker.mqtt_3_1_1_refusal = None, UNSUPPORTED.encode(MQTT_3_1_1)
        broker.drop_clients()
        await append(log, range(1, 2))
        await until(lambda: bool(broker.publishes[-1]))


async def test_a_login_that_a_broker_of_3_1_1_refuses_is_told_by_its_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    refusal = Connack(False, BAD_USER_NAME_OR_PASSWORD).encode(MQTT_3_1_1)
    async with routed(tmp_path, mqtt_5_refusal=refusal, mqtt_3_1_1_refusal=refusal):
        await until(lambda: "bad user name or password (0x86)" in caplog.text)


async def test_the_limit_of_a_packet_holds_over_3_1_1_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    large = b"\x20" + encode_varint(250_000_000)
    async with routed(tmp_path, mqtt_5_refusal=CLOSED, mqtt_3_1_1_refusal=large):
        await until(lambda: f"bytes; {MAXIMUM_PACKET_SIZE} is the most" in caplog.text)


async def test_over_3_1_1_a_resumed_session_gets_what_is_unacknowledged_again_with_dup(tmp_path: Path) -> None:
    def only_the_first(publish: Publish) -> int | None:
        return 0 if publish.payload == b"1" else None

    async with routed(tmp_path, mqtt_5_refusal=UNSUPPORTED.encode(), puback=only_the_first) as (broker, log):
        await append(log, range(1, 4))
        await log.submit([Message("a", b"4", 2)])
        await until(lambda: bool(broker.publishes) and len(broker.publishes[-1]) == 4)
        broker.session_present = True
        broker.drop_clients()
        await until(lambda: len(broker.publishes) == 3 and len(broker.publishes[-1]) == 3)
    first, second = broker.publishes[-2:]
    assert [(bytes(p.payload), p.qos, p.dup) for p in second] == [(b"2", 1, True), (b"3", 1, True), (b"4", 2, True)]
    assert [p.packet_identifier for p in second] == [p.packet_identifier for p in first[1:]]


@pytest.mark.parametrize("qos", [1, 2])
async def test_over_3_1_1_every_message_arrives_over_a_link_that_is_cut_again_and_again(
    tmp_path: Path, seed: int, qos: int
) -> None:
    count = 900
    with mosquitto(tmp_path) as port, subscriber(port, qos=2) as received:
        async with of_3_1_1(port) as outer, opened(tmp_path) as log:
            link = NetworkLink("127.0.0.1", outer)
            await link.open()
            async with running(log, route_config(link.port, inflight_window=50)):
                messages = [Message("a", b"%d" % number, qos) for number in range(count)]
                await asyncio.gather(*(log.submit([message]) for message in messages))
                payloads: list[int] = []
                while not payloads or max(payloads) < count - 1:
                    payloads.append(int((await get(received)).payload))
                    if len(payloads) % 150 == 0:
                        await link.cut()
                        await link.open()
                await log.submit([Message("a", b"%d" % count, qos)])  # behind it nothing of the others comes
                while payloads[-1] != count:
                    payloads.append(int((await get(received)).payload))
            await link.cut()
    assert (list(dict.fromkeys(payloads)) if qos == 1 else payloads) == list(range(count + 1))
