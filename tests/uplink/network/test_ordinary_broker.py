"""A real mosquitto as a neighbour: it knows nothing of links, and gets plain SUBSCRIBEs."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.support import until
from tests.uplink.network.sites import Site, message_to, next_of
from tools.lab.testing.client import Client
from tools.lab.testing.mosquitto import Mosquitto
from tools.lab.testing.network_link import NetworkLink
from uplink.connect.session import TOPIC
from wire.codec.decoder import PacketDecoder
from wire.codec.packets import TO_SERVER, Publish, Suback, Subscribe, Unsubscribe
from wire.properties import RESPONSE_TOPIC

KEPT = {"session_expiry_s": 1000, "clean_start": False}


@pytest.fixture(name="broker")
def running_broker(tmp_path: Path) -> Iterator[Mosquitto]:
    folder = tmp_path / "mosquitto"
    folder.mkdir()
    broker = Mosquitto(folder, "max_inflight_messages 0")
    broker.start()
    yield broker
    broker.stop()


def chain(folder: Path, broker: Mosquitto, *names: str) -> list[Site]:
    """Gateways that all dial the broker."""
    sites = [Site(folder, name) for name in names]
    for site in sites:
        site.dial(broker.port, None)
    return sites


async def at(broker: Mosquitto, name: str, *filters: str, **keys: object) -> Client:
    """A client of the broker that has subscribed to these filters."""
    client = await Client(name, **keys).connect(broker.port)
    if filters:
        await client.subscribe(*filters, options=2)
    return client


async def carries(broker: Mosquitto, site: Site, reader: Client, topic: str) -> None:
    """Returns when a message of this topic comes from the broker to a reader at the site."""
    probe = await at(broker, "probe", clean_start=True)
    coming = asyncio.ensure_future(message_to(reader))
    while not coming.done():
        await probe.publish(topic, b"probe")
        await asyncio.wait({coming}, timeout=0.1)
    await probe.disconnect()


class Wiretap:
    """A line to the broker, and the filters of the session at its end, as its packets change them."""

    def __init__(self, port: int) -> None:
        self.line = NetworkLink("127.0.0.1", port, tap=self._note)
        self.filters: set[str] = set()
        self.packets: list[Subscribe | Unsubscribe] = []
        self._decoders: dict[object, PacketDecoder] = {}

    def _note(self, connection: object, from_near: bool, data: bytes) -> None:
        if not from_near:
            return
        decoder = self._decoders.setdefault(connection, PacketDecoder(TO_SERVER))
        decoder.feed(data)
        while (packet := decoder.next_packet()) is not None:
            if isinstance(packet, Subscribe | Unsubscribe) and f"{TOPIC}/" in str(packet.filters[0]):
                continue  # a mark of the route's session
            if isinstance(packet, Subscribe):
                self.packets.append(packet)
                self.filters.update(topic_filter for topic_filter, _ in packet.filters)
            elif isinstance(packet, Unsubscribe):
                self.packets.append(packet)
                self.filters.difference_update(packet.filters)


async def test_messages_come_down_only_when_they_are_wanted_and_go_up_only_by_filters(
    tmp_path: Path, broker: Mosquitto
) -> None:
    a = Site(tmp_path, "a")
    a.dial(broker.port, None, filters=("up/#",))
    upstream = await at(broker, "upstream", "#")
    async with a:
        reader = await a.client("reader", "commands/a")
        await carries(broker, a, reader, "commands/a")
        sender = await at(broker, "sender")
        before = a.broker.counters.messages_stored
        for topic in ("commands/b", "other", "commands/a"):
            await sender.publish(topic, b"1")
        while (await message_to(reader)).payload != b"1":
            pass
        device = await a.client("device")
        await device.publish("private", b"")
        await device.publish("up/1", b"last")
        while (packet := await message_to(upstream)).topic != "up/1":
            assert packet.topic.startswith(("commands/", "other"))
        assert a.broker.counters.messages_stored - before == 2 + 1


async def test_filters_that_overlap_bring_each_message_once(tmp_path: Path, broker: Mosquitto) -> None:
    (a,) = chain(tmp_path, broker, "a")
    async with a:
        one = await a.client("one", "t/+", "t/#")
        two = await a.client("two", "+/x", "t/x", "marker")
        await carries(broker, a, two, "marker")
        sender = await at(broker, "sender")
        before = a.broker.counters.messages_stored
        for number in range(20):
            await sender.publish(("t/x", "t/y", "s/x")[number % 3], b"%d" % number)
        expected = [number for number in range(20) if number % 3 != 1]
        found: list[int] = []
        while len(found) < len(expected):
            packet = await message_to(two)
            if packet.topic != "marker":
                found.append(int(packet.payload))
        assert found == expected
        wanted = [number for number in range(20) if number % 3 != 2]
        assert [int((await message_to(one)).payload) for _ in wanted] == wanted
        assert a.broker.counters.messages_stored - before == 20
        assert a.broker.counters.messages_duplicate == 0


async def test_as_few_subscriptions_as_cover_the_interest_are_made_and_no_two_overlap(
    tmp_path: Path, broker: Mosquitto
) -> None:
    tap = Wiretap(broker.port)
    await tap.line.open()
    a = Site(tmp_path, "a")
    a.dial(tap.line.port, None)
    async with a:
        await a.linked()
        one = await a.client("one", "a/1", "a/2", "b")
        await until(lambda: tap.filters == {"a/1", "a/2", "b"}, "each is subscribed to")
        two = await a.client("two", "a/+", "$share/g/b")
        await until(lambda: tap.filters == {"a/+", "b"}, "what is covered is not")
        await two.subscribe("+/1")
        await until(lambda: not {"a/+", "+/1"} <= tap.filters and "a/+" not in tap.filters, "overlaps are joined")
        assert len(tap.filters) <= 2
        await two.unsubscribe("+/1")
        await until(lambda: tap.filters == {"a/+", "b"}, "overlaps are parted")
        await two.unsubscribe("a/+")
        await until(lambda: tap.filters == {"a/1", "a/2", "b"}, "what was covered is back")
        await one.unsubscribe("a/1", "a/2", "b")
        await until(lambda: tap.filters == {"b"}, "the group wants one")
        await two.unsubscribe("$share/g/b")
        await until(lambda: not tap.filters, "nothing is left")
    await tap.line.cut()


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_requests_and_answers_go_both_ways_through_a_broker_between_two_gateways(
    tmp_path: Path, broker: Mosquitto, qos: int
) -> None:
    a, b = Site(tmp_path, "a"), Site(tmp_path, "b")
    for site in (a, b):
        site.dial(broker.port, None, filters=("requests/#", "responses/#"), qos0="online")
    async with a, b:
        ends = {}
        for site in (a, b):
            ends[site] = await site.client("service", f"requests/{site.name}")
            await carries(broker, site, ends[site], f"requests/{site.name}")
        for site, other in ((a, b), (b, a)):
            requester = await other.client("requester")
            for number in range(10):
                response = f"responses/{other.name}/{number}"
                requester.protocol.subscribe([(response, 2)])
                requester.flush()
                await next_of(requester, Suback)
                requester.send(f"requests/{site.name}", b"%d" % number, qos=qos, properties={RESPONSE_TOPIC: response})
                while (asked := await message_to(ends[site])).payload == b"probe":
                    pass
                assert (asked.payload, asked.qos) == (b"%d" % number, qos)
                ends[site].send(asked.properties[RESPONSE_TOPIC], b"answer", qos=qos)
                answer = await message_to(requester)
                assert (answer.topic, answer.payload, answer.qos) == (response, b"answer", qos)


async def test_a_broker_that_restarts_keeps_what_is_for_a_gateway_and_the_gateway_what_is_for_the_broker(
    tmp_path: Path, broker: Mosquitto
) -> None:
    a, b = Site(tmp_path, "a"), Site(tmp_path, "b")
    a.dial(broker.port, None, filters=("orders/#",))
    b.dial(broker.port, None)
    async with a, b:
        reader = await b.client("reader", "orders/+", **KEPT)
        await carries(broker, b, reader, "orders/0")
        device = await a.client("device")
        await device.publish("orders/1", b"0")
        await b.stop()
        for number in range(1, 20):
            await device.publish("orders/1", b"%d" % number)
        await asyncio.to_thread(broker.stop)
        for number in range(20, 40):
            await device.publish("orders/1", b"%d" % number)
        broker.start()
        await b.start()
        reader = await b.client("reader", **KEPT)
        found: list[int] = []
        while len(found) < 40:
            packet = await message_to(reader)
            if packet.topic == "orders/1":
                found.append(int(packet.payload))
        assert sorted(found) == list(range(40))


async def test_interest_that_changes_while_the_broker_is_away_is_told_when_it_is_back(
    tmp_path: Path, broker: Mosquitto
) -> None:
    (a,) = chain(tmp_path, broker, "a")
    async with a:
        reader = await a.client("reader", "old", "kept", "marker")
        await carries(broker, a, reader, "old")
        await asyncio.to_thread(broker.stop)
        await until(lambda: not a.routes.states[0].connected, "the broker is away")
        await reader.unsubscribe("old")
        await reader.subscribe("new", options=2)
        broker.start()
        await carries(broker, a, reader, "new")
        sender = await at(broker, "sender")
        before = a.broker.counters.messages_stored
        for topic in ("old", "kept", "marker"):
            await sender.publish(topic, topic.encode())
        while (packet := await message_to(reader)).topic != "marker":
            assert packet.topic in ("kept", "new")
        assert a.broker.counters.messages_stored - before == 2


async def test_what_is_wanted_no_more_when_a_gateway_starts_ends_at_the_broker(
    tmp_path: Path, broker: Mosquitto
) -> None:
    (a,) = chain(tmp_path, broker, "a")
    async with a:
        await a.linked()
        reader = await a.client("reader", "stale", "kept", session_expiry_s=0)
        await carries(broker, a, reader, "kept")
    async with a:  # the reader's session has ended with its connection
        await a.linked()
        sender = await at(broker, "sender")
        before = a.broker.counters.messages_stored
        assert (await sender.publish("stale")).reason_code == 0x10
        reader = await a.client("reader", "new")
        await carries(broker, a, reader, "new")
        assert (await sender.publish("kept")).reason_code == 0x10
        assert a.broker.counters.messages_stored > before


async def test_a_gateway_at_an_ordinary_broker_sends_what_filters_say_and_gets_its_own_messages_back_never(
    tmp_path: Path, broker: Mosquitto
) -> None:
    a = Site(tmp_path, "a")
    a.dial(broker.port, None, filters=("t/#",))
    async with a:
        reader = await a.client("reader", "t/#", "marker")
        await carries(broker, a, reader, "marker")
        device = await a.client("device")
        before = a.broker.counters.messages_stored
        upstream = await at(broker, "upstream", "t/#")
        for number in range(10):
            await device.publish("t/1", b"%d" % number)
        assert [int((await message_to(upstream)).payload) for _ in range(10)] == list(range(10))
        await carries(broker, a, await a.client("last", "last"), "last")
        assert a.broker.counters.messages_returned == 0
        assert [b"%d" % number for number in range(10)] == [
            packet.payload for packet in [await _not_of(reader, "marker") for _ in range(10)]
        ]
        assert a.broker.counters.messages_stored - before >= 10


async def _not_of(reader: Client, topic: str) -> Publish:
    while (packet := await message_to(reader)).topic == topic:
        pass
    return packet


@pytest.mark.parametrize("filters", [("orders/1/#", "orders/#"), ("$share/g/orders/1", "orders/#")])
async def test_a_filter_that_the_next_one_of_its_subscribe_covers_leaves_the_wider_one_asked_for(
    tmp_path: Path, broker: Mosquitto, filters: tuple[str, ...]
) -> None:
    (site,) = chain(tmp_path, broker, "a")
    async with site:
        await site.linked()
        reader = await site.client("reader", *filters)
        await carries(broker, site, reader, "orders/2")
        other = await site.client("other", "others")
        await carries(broker, site, other, "others")


async def test_a_filter_that_was_ended_at_the_broker_is_asked_for_again_when_it_is_wanted_during_a_cut(
    tmp_path: Path, broker: Mosquitto
) -> None:
    tapped = Wiretap(broker.port)
    await tapped.line.open()
    a = Site(tmp_path, "a")
    a.dial(tapped.line.port, None)
    async with a:
        reader = await a.client("reader", "t", **KEPT)
        await until(lambda: "t" in tapped.filters, "it is asked for")
        await tapped.line.cut()
        await until(lambda: not a.routes.states[0].connected, "the line is down")
        await tapped.line.open()  # the route notes which filters the session has
        await until(lambda: a.routes.states[0].connected, "the line is up")
        await reader.unsubscribe("t")
        await until(lambda: "t" not in tapped.filters, "it is ended")
        await tapped.line.cut()
        await until(lambda: not a.routes.states[0].connected, "the line is down")
        await reader.subscribe("t")
        await tapped.line.open()
        await until(lambda: "t" in tapped.filters, "it is asked for again")
        await carries(broker, a, reader, "t")
    await tapped.line.cut()
