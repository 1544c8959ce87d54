"""Publishers and subscribers that name streams in different ways meet where the stream is the same."""

from pathlib import Path

import pytest

from tests.gateway.streams.support import (
    IMPLIED,
    PLANT,
    WAYS,
    client,
    listeners,
    named_in,
    publish,
    subscribe,
    unsubscribe,
)
from tests.gateway.support import running

ALL = WAYS | IMPLIED


@pytest.mark.parametrize("subscribing", ALL)
@pytest.mark.parametrize("publishing", ALL)
async def test_they_meet_in_the_same_stream_and_in_no_other(tmp_path: Path, publishing: str, subscribing: str) -> None:
    ours, theirs = ALL[subscribing], ALL[publishing]
    async with running(tmp_path, *listeners(), stream=[PLANT]) as broker:
        subscriber, publisher = await client(broker, "to", ours), await client(broker, "from", theirs)
        assert await subscribe(subscriber, ours) == [1]
        await publish(publisher, theirs, b"message")
        await publish(await client(broker, "marker", ours), ours, b"marker")
        expected = [b"message", b"marker"] if theirs.stream == ours.stream else [b"marker"]
        packets = [await subscriber.receive() for _ in expected]
        assert [packet.payload for packet in packets] == expected
        assert {(packet.topic, named_in(packet)) for packet in packets} == {(ours.topic, ours.named)}


@pytest.mark.parametrize("subscribing", ALL)
@pytest.mark.parametrize("publishing", ALL)
async def test_a_retained_message_is_in_its_stream_alone(tmp_path: Path, publishing: str, subscribing: str) -> None:
    ours, theirs = ALL[subscribing], ALL[publishing]
    async with running(tmp_path, *listeners(), stream=[PLANT]) as broker:
        publisher, subscriber = await client(broker, "from", theirs), await client(broker, "to", ours)
        await publish(publisher, theirs, b"retained", retain=True)
        await subscribe(subscriber, ours)
        if theirs.stream == ours.stream:
            packet = await subscriber.receive()
            assert (packet.payload, packet.retain, packet.topic, named_in(packet)) == (
                b"retained",
                True,
                ours.topic,
                ours.named,
            )
        await subscriber.expect_no_message()


@pytest.mark.parametrize("subscribing", ALL)
async def test_a_filter_that_is_unsubscribed_in_the_same_way_takes_nothing_more(
    tmp_path: Path, subscribing: str
) -> None:
    way = ALL[subscribing]
    async with running(tmp_path, *listeners(), stream=[PLANT]) as broker:
        subscriber, publisher = await client(broker, "to", way), await client(broker, "from", way)
        await subscribe(subscriber, way)
        assert await unsubscribe(subscriber, way) == [0]
        await publish(publisher, way, b"message")
        await subscriber.expect_no_message()
