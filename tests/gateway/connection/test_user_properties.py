"""What a stock client gets is what was published; identity and provenance go to clients that ask for them."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.store.support import epoch_of
from tests.gateway.support import Client, running, subscribed, tcp_port
from wire.codec.packets import MQTT_3_1_1, Publish, Will
from wire.identity import RECEIVE
from wire.properties import CONTENT_TYPE, PAYLOAD_FORMAT_INDICATOR, USER_PROPERTY

PAIRS = [("c", "3"), ("a", "2"), ("c", "3"), ("a", "1"), ("", "")]
OWN = ("hf-id", "0000002a/{}/sensor")


async def connected(port: int, name: str, qos: int = 2, **options: Any) -> Client:
    client = await Client(name, receive_maximum=1, **options).connect(port)
    await client.subscribe("a/#", options=qos)
    return client


async def publish(client: Client, qos: int, properties: dict[int, Any], **options: Any) -> None:
    if qos == 0:
        client.send("a/b", b"x", qos=0, properties=properties, **options)
    else:
        await (client.publish if qos == 1 else client.publish_once)("a/b", b"x", properties=properties, **options)


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_properties_arrive_as_they_were_published_and_nothing_else(tmp_path: Path, qos: int) -> None:
    published = {CONTENT_TYPE: "text/plain", PAYLOAD_FORMAT_INDICATOR: 1, USER_PROPERTY: PAIRS}
    plain = {key: published[key] for key in (CONTENT_TYPE, USER_PROPERTY)}
    async with running(tmp_path) as broker:
        reader = await connected(tcp_port(broker), "reader")
        publisher = await Client("publisher").connect(tcp_port(broker))
        for properties in (published, plain, plain, {}, {}):  # one by one, by the hot path, without
            await publish(publisher, qos, properties)
            assert (await reader.receive()).properties == properties
        old = await Client("old", protocol_level=MQTT_3_1_1).connect(tcp_port(broker))
        for _ in range(2):
            await publish(old, qos, {})
            assert (await reader.receive()).properties == {}
        await publish(publisher, qos, plain, retain=True)
        assert (await reader.receive()).properties == plain
        late = await connected(tcp_port(broker), "late")
        assert (await late.receive()).properties == plain


@pytest.mark.parametrize("qos", [1, 2])
async def test_what_a_device_says_of_itself_reaches_only_clients_that_ask(tmp_path: Path, qos: int) -> None:
    async with running(tmp_path) as broker:
        reader = await connected(tcp_port(broker), "reader")
        asking = await connected(tcp_port(broker), "asking", wishes=("something new", RECEIVE))
        device = await Client("sensor").connect(tcp_port(broker))
        for number in range(1, 4):  # from the second on they go the hot path
            own = (OWN[0], OWN[1].format(number))
            await publish(device, qos, {CONTENT_TYPE: "text/plain", USER_PROPERTY: [*PAIRS, own]})
            assert (await reader.receive()).properties == {CONTENT_TYPE: "text/plain", USER_PROPERTY: PAIRS}
            pairs = (await asking.receive()).properties[USER_PROPERTY]
            assert pairs[:-1] == [*PAIRS, own]
            assert pairs[-1][0] == "hf-received"
            assert re.fullmatch(r"\d+/test-gateway", pairs[-1][1])


async def test_a_will_arrives_as_its_client_left_it(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        reader = await connected(tcp_port(broker), "reader")
        dying = await Client("dying", will=Will("a/b", b"", 1, properties={USER_PROPERTY: PAIRS})).connect(
            tcp_port(broker)
        )
        dying.cut()
        assert (await reader.receive()).properties == {USER_PROPERTY: PAIRS}


@pytest.mark.parametrize("wishes", [(), (RECEIVE,)], ids=["stock", "asking"])
@pytest.mark.parametrize("qos", [1, 2])
async def test_a_client_may_publish_again_what_it_received_with_all_its_properties(
    tmp_path: Path, qos: int, wishes: tuple[str, ...]
) -> None:
    async with running(tmp_path) as broker:
        copies = await subscribed(broker, "copies", "copy", options=qos, receive_maximum=1, wishes=(RECEIVE,))
        flow = await connected(tcp_port(broker), "flow", wishes=wishes)
        sensor = await Client("sensor").connect(tcp_port(broker))
        identities = []
        for number in range(1, 4):
            own = (OWN[0], OWN[1].format(number))
            await publish(sensor, qos, {USER_PROPERTY: [*PAIRS, own]})
            received = await flow.receive()
            again = flow.publish if qos == 1 else flow.publish_once
            await again("copy", received.payload, properties=received.properties)
            pairs = (await copies.receive()).properties[USER_PROPERTY]
            assert pairs[:-2] == PAIRS
            identities.append(pairs[-2])
        epoch = f"{epoch_of(tmp_path):08x}"
        assert identities == [("hf-id", f"{epoch}/{number}/test-gateway") for number in range(1, 4)]
        assert broker.counters.identities_replaced == (3 if wishes else 0)


async def test_a_client_of_small_packets_gets_a_message_without_the_identity_that_it_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        reader = await subscribed(broker, "reader", "#", maximum_packet_size=60, wishes=(RECEIVE,))
        publisher = await Client("publisher").connect(tcp_port(broker))
        await publisher.publish("a", b"x" * 40)
        packet: Publish = await reader.receive()
        assert (packet.payload, packet.properties) == (b"x" * 40, {})
