"""Subscriptions with a selector, as subscribers see them."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.config.schema import LimitsConfig
from tests.gateway.store.support import stored
from tests.gateway.support import Client, all_connected, connected, running
from wire import properties as p
from wire.codec.packets import NO_LOCAL, Publish, Suback
from wire.reasons import IMPLEMENTATION_SPECIFIC_ERROR, QUOTA_EXCEEDED


async def select(client: Client, selector: str, *filters: str, options: int = 1) -> Suback:
    """Subscribes with a selector."""
    client.protocol.subscribe([(one, options) for one in filters], {p.USER_PROPERTY: [("hf-select", selector)]})
    client.flush()
    answer: Suback = await client.expect(Suback)
    return answer


async def publish(client: Client, topic: str, payload: bytes, **user_properties: str) -> None:
    await client.publish(topic, payload, properties={p.USER_PROPERTY: list(user_properties.items())})


async def payloads(client: Client, count: int) -> list[bytes]:
    packets: list[Publish] = [await client.receive() for _ in range(count)]
    await client.expect_no_message()
    return [bytes(packet.payload) for packet in packets]


async def test_a_subscriber_gets_what_passes_its_selector(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber, publisher = await all_connected(broker, "subscriber", "publisher")
        assert (await select(subscriber, "region = 'north' AND json > 3", "orders/#")).reason_codes == [1]
        for number in range(1, 8):
            await publish(publisher, "orders/1", b"%d" % number, region="north" if number % 2 else "south")
        assert await payloads(subscriber, 2) == [b"5", b"7"]


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_selector_holds_at_each_qos(tmp_path: Path, qos: int) -> None:
    async with running(tmp_path) as broker:
        subscriber, publisher = await all_connected(broker, "subscriber", "publisher")
        await select(subscriber, "json = 2", "a", options=qos)
        for number in (1, 2, 3):
            publisher.send("a", b"%d" % number, qos=0)
        await publisher.publish("b")
        assert await payloads(subscriber, 1) == [b"2"]


async def test_a_message_that_another_subscription_takes_has_the_identifiers_of_those_that_it_passes(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as broker:
        subscriber, publisher = await all_connected(broker, "subscriber", "publisher")
        for identifier, topic_filter, selector in ((1, "a/#", "json > 5"), (2, "a/+", "json > 1"), (3, "+/b", None)):
            properties: dict[int, Any] = {p.SUBSCRIPTION_IDENTIFIER: [identifier]}
            if selector:
                properties[p.USER_PROPERTY] = [("hf-select", selector)]
            subscriber.protocol.subscribe([(topic_filter, 1)], properties)
            subscriber.flush()
            await subscriber.expect(Suback)
        for payload in (b"9", b"3", b"0"):
            await publisher.publish("a/b", payload)
        packets = [await subscriber.receive() for _ in range(6)]
        found = sorted((one.payload, *one.properties[p.SUBSCRIPTION_IDENTIFIER]) for one in packets)
        assert found == [(b"0", 3), (b"3", 2), (b"3", 3), (b"9", 1), (b"9", 2), (b"9", 3)]


async def test_a_selector_outlives_a_restart_and_holds_for_what_waits(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await connected(broker, "subscriber")
        await select(subscriber, "json > 3", "a")
        await subscriber.disconnect()
        publisher = await connected(broker, "publisher")
        for number in range(6):
            await publisher.publish("a", b"%d" % number)
    async with running(tmp_path) as broker:
        publisher = await connected(broker, "publisher")
        await publisher.publish("a", b"1")
        await publisher.publish("a", b"6")
        subscriber = await connected(broker, "subscriber")
        assert await payloads(subscriber, 3) == [b"4", b"5", b"6"]


async def test_a_subscription_that_is_made_again_has_the_new_selector_or_none(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber, publisher = await all_connected(broker, "subscriber", "publisher")
        for selector, passing in (("json = 1", b"1"), ("json = 2", b"2")):
            await select(subscriber, selector, "a")
            for payload in (b"1", b"2"):
                await publisher.publish("a", payload)
            assert await payloads(subscriber, 1) == [passing]
        await subscriber.subscribe("a")
        for payload in (b"1", b"2"):
            await publisher.publish("a", payload)
        assert await payloads(subscriber, 2) == [b"1", b"2"]


async def test_retained_messages_come_if_they_pass(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber, publisher = await all_connected(broker, "subscriber", "publisher")
        for number in range(250):
            await publisher.publish(f"a/{number}", b"%d" % number, retain=True)
        await select(subscriber, "json >= 120 AND json < 220", "a/#")
        assert sorted(map(int, await payloads(subscriber, 100))) == list(range(120, 220))


async def test_a_clients_own_messages_pass_neither_a_selector_nor_no_local(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client, publisher = await all_connected(broker, "client", "publisher")
        await select(client, "json > 1", "a", options=1 | NO_LOCAL)
        await client.publish("a", b"2")
        await publisher.publish("a", b"1")
        await publisher.publish("a", b"3")
        assert await payloads(client, 1) == [b"3"]


@pytest.mark.parametrize(
    ("selector", "filters", "text"),
    [
        ("region == 'north'", ("a", "b"), "hf-select: character 9: expected a field, a number"),
        ("", ("a",), "hf-select: character 1: expected a field"),
        ("region = 'north'", ("$share/group/a",), "hf-select: a shared subscription takes no selector"),
    ],
)
async def test_a_bad_selector_is_refused_in_words_and_subscribes_nothing(
    tmp_path: Path, selector: str, filters: tuple[str, ...], text: str
) -> None:
    async with running(tmp_path) as broker:
        subscriber, publisher = await all_connected(broker, "subscriber", "publisher")
        answer = await select(subscriber, selector, *filters)
        assert answer.reason_codes == [IMPLEMENTATION_SPECIFIC_ERROR] * len(filters)
        assert answer.properties[p.REASON_STRING].startswith(text)
        await publisher.publish("a", b"1")
        assert await payloads(subscriber, 0) == []


async def test_selectors_count_for_the_limit_of_subscriptions(tmp_path: Path) -> None:
    long = " OR ".join(["json = 1"] * 85)
    async with running(tmp_path, limits=LimitsConfig(subscriptions=100)) as broker:
        subscriber = await connected(broker, "subscriber")
        codes = [(await select(subscriber, long, f"a/{number}")).reason_codes[0] for number in range(12)]
        assert codes == [1] * 8 + [QUOTA_EXCEEDED] * 4
        assert (await select(subscriber, "json = 1", "a/1")).reason_codes == [1]
        assert (await select(subscriber, long, "b")).reason_codes == [1]


async def test_a_selected_session_that_ends_leaves_ranges_for_what_had_passed(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber, publisher = await all_connected(broker, "subscriber", "publisher")
        await select(subscriber, "json > 3", "a")
        await subscriber.disconnect()
        for number in range(6):
            await publisher.publish("a", b"%d" % number)
        await (await connected(broker, "subscriber", clean_start=True)).disconnect()
    assert stored(tmp_path, "SELECT reason, consumer, messages FROM dropped") == [("ended", "session/subscriber", 2)]


async def test_selectors_that_look_at_one_topic_name_together_are_bounded(tmp_path: Path) -> None:
    """Filters with the same wildcards match different topic names, and count once."""
    long = "json > 1" + " " * 1_016
    async with running(tmp_path) as broker:
        (client,) = await all_connected(broker, "client")
        patterns = ["/".join("+" if number >> place & 1 else "a" for place in range(4)) + "/#" for number in range(11)]
        codes = [(await select(client, long, one)).reason_codes[0] for one in patterns]
        assert codes == [1] * 10 + [QUOTA_EXCEEDED]
        assert (await select(client, long, *(f"{one}/a/a/a/#" for one in "bcdef"))).reason_codes == [1] * 5
        assert (await select(client, "json > 1", patterns[10])).reason_codes == [QUOTA_EXCEEDED]
        await client.unsubscribe(patterns[9])
        assert (await select(client, long, patterns[10])).reason_codes == [1]


async def test_readings_of_too_many_times_are_not_known(tmp_path: Path) -> None:
    """The times multiplied by the words of the selectors are bounded, and so is what other clients wait."""
    async with running(tmp_path) as broker:
        one, many, publisher = await all_connected(broker, "one", "many", "publisher")
        await select(one, "reading.a > 0", "a/#")
        for number in range(20):
            pattern = "/".join("+" if number >> place & 1 else "a" for place in range(5))
            await select(many, " OR ".join(["reading.a > 0"] * 20), pattern + "/#")
        for count in (10, 2_000):
            pack = json.dumps([{"n": "a", "v": 1, "t": number} for number in range(count)], separators=(",", ":"))
            await publisher.publish("a/a/a/a/a", pack.encode())
        assert len(await payloads(one, 2)) == 2
        assert len(await payloads(many, 1)) == 1
