"""A gateway tells which store it has, and a new store takes what a device sends again."""

from pathlib import Path

from gateway.broker import Broker
from tests.gateway.support import connected, running, subscribed
from wire.hops import STORE_PROPERTY
from wire.identity import IDENTITY_PROPERTY, encode_identity, find_user_property
from wire.properties import USER_PROPERTY


async def store_told(broker: Broker) -> str | None:
    return find_user_property((await connected(broker)).connack.properties, STORE_PROPERTY)


async def test_a_connack_names_the_store_and_a_new_store_has_another_name(tmp_path: Path) -> None:
    told = []
    for folder in ("first", "first", "second"):
        async with running(tmp_path / folder) as broker:
            told.append(await store_told(broker))
    assert told[0] is not None and len(told[0]) == 8
    assert told[0] == told[1] != told[2]


async def test_numbers_below_the_highest_that_the_store_knows_are_stored_too(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as broker:
        subscriber = await subscribed(broker, "reader", "a")
        device = await connected(broker, "device")
        for seq in (50, 3, 4):
            identity = encode_identity("device", 7, seq)
            await device.publish("a", b"%d" % seq, properties={USER_PROPERTY: [(IDENTITY_PROPERTY, identity)]})
        assert [(await subscriber.receive()).payload for _ in range(3)] == [b"50", b"3", b"4"]
