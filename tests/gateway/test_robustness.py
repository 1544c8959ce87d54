"""The broker goes on after any input, and other clients notice nothing."""

import asyncio
import random
from pathlib import Path

import pytest

from tests.gateway.support import Client, connected, joined, running, tcp_port
from wire.codec.packets import Connect, Disconnect, Packet, Puback, Publish, Subscribe, Unsubscribe, encode
from wire.properties import SESSION_EXPIRY_INTERVAL, USER_PROPERTY

SESSION: list[Packet] = [
    Connect("mutant", False, 60, properties={SESSION_EXPIRY_INTERVAL: 0xFFFFFFFF}),
    Subscribe(1, [("a/#", 1), ("$share/group/a/+", 1), ("+/b", 5)]),
    Publish("a/b", b"x" * 50, 1, packet_identifier=1, properties={USER_PROPERTY: [("hf-id", "0000002a/1/mutant")]}),
    Publish("a/c", b"y" * 50, 0),
    Puback(1),
    Unsubscribe(2, ["a/#"]),
    Disconnect(),
]


def mutated(chance: random.Random) -> bytes:
    """A whole session with a few bytes changed, removed, added or moved, or cut off."""
    data = bytearray(b"".join(encode(packet) for packet in SESSION))
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(data) or 1)
        match chance.randrange(4):
            case 0:
                data[at : at + 1] = chance.randbytes(1)
            case 1:
                del data[at : at + chance.randrange(1, 10)]
            case 2:
                data[at:at] = chance.randbytes(chance.randrange(1, 10))
            case 3:
                data[:] = data[: at + 1]
    return bytes(data)


async def throw(port: int, data: bytes, chance: random.Random) -> None:
    """Sends bytes in pieces and leaves, in good order or not."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while data:
            piece, data = data[: (at := chance.randrange(1, 80))], data[at:]
            writer.write(piece)
            await writer.drain()
        if chance.random() < 0.5:
            async with asyncio.timeout(0.02):
                await reader.read()
    except (OSError, TimeoutError):
        pass
    finally:
        writer.transport.abort()


async def test_mutated_sessions_disturb_no_other_client(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(seed)
    async with running(tmp_path) as broker:
        port = tcp_port(broker)
        subscriber = await joined(port, "subscriber", "bystander")
        publisher = await Client("publisher").connect(port)
        for number in range(60):
            await asyncio.gather(*(throw(port, mutated(chance), chance) for _ in range(5)))
            await publisher.publish("bystander", b"%d" % number)
            assert (await subscriber.receive()).payload == b"%d" % number
    assert "unexpected failure" not in caplog.text
    async with running(tmp_path) as broker:
        subscriber = await connected(broker, "subscriber")
        assert subscriber.connack.session_present
