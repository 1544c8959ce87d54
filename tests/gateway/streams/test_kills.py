"""Streams keep what was acknowledged when the gateway is killed."""

import random
from pathlib import Path

from tests.gateway.streams.support import WAYS, subscribe
from tests.gateway.support import Client, GatewayProcess
from wire.codec.packets import Puback, Publish, Pubrel

PREFIX = WAYS["writes a prefix"]
DURABLE = {"clean_start": False, "session_expiry_s": 1000}
MESSAGES = 60


async def test_what_was_acknowledged_in_any_stream_arrives_once_after_kills(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    gateway = GatewayProcess(tmp_path, "env", "HOLDFAST_TEST_STREAMS=plant,office")
    await gateway.start()
    topics = ["t", "$SYS/STREAM/plant/t", "$SYS/STREAM/office/t"]
    reader = await Client("reader", **DURABLE).connect(gateway.port)
    assert await subscribe(reader, PREFIX, *topics, qos=2) == [2, 2, 2]
    found: dict[str, list[bytes]] = {topic: [] for topic in topics}
    sent = 0
    while sent < MESSAGES:
        publisher = await Client("publisher").connect(gateway.port)
        for _ in range(chance.randrange(5, 20)):
            for topic in topics:
                publisher.send(topic, b"%d" % sent, qos=1)
                assert (await publisher.expect(Puback)).reason_code in (0, 0x10)
            sent += 1
        for _ in range(chance.randrange(10)):
            _take(reader, await reader.event(), found)
        await gateway.restart()
        reader = await Client("reader", **DURABLE).connect(gateway.port)
    while sum(map(len, found.values())) < len(topics) * sent:
        _take(reader, await reader.event(), found)
    assert found == {topic: [b"%d" % number for number in range(sent)] for topic in topics}


def _take(reader: Client, packet: object, found: dict[str, list[bytes]]) -> None:
    """Acknowledges a packet. A message that comes again, as its PUBREC was lost, has DUP and is known."""
    if isinstance(packet, Publish):
        if not (packet.dup and packet.payload in found[packet.topic]):
            found[packet.topic].append(packet.payload)
        reader.acknowledge(packet)
    elif isinstance(packet, Pubrel):
        reader.protocol.pubcomp(packet.packet_identifier)
        reader.flush()
    else:
        raise AssertionError(packet)
