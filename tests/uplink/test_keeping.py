"""A route that keeps what its broker has acknowledged until receipts say that it is settled."""

import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gateway.broker import Broker
from gateway.config.schema import StoreConfig
from gateway.store import MessageLog
from gateway.store.tables.drops import UNPROVEN
from tests.gateway.store.support import messages_in, stored
from tests.gateway.support import Client, connected, subscribed, tcp_port
from tests.gateway.support import running as running_broker
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from tests.uplink.inbound_support import route_of
from tests.uplink.keeping_support import Clock
from tests.uplink.support import serving, until
from uplink.queue.keeping import Keeping
from uplink.route import Route
from wire.bulk.column_batch import CONTENT_TYPE as BATCH_TYPE
from wire.bulk.column_batch import decode_batch
from wire.codec.packets import Publish
from wire.identity import decode_identity
from wire.properties import CONTENT_TYPE, USER_PROPERTY
from wire.reasons import QUOTA_EXCEEDED, SUCCESS
from wire.receipt import Receipt, Settled, decode_receipt, encode_receipt, receipt_topic
from wire.runs import runs_of

RANGES = "SELECT reason, consumer, first, last, messages FROM dropped ORDER BY first"
ORIGIN = "test-gateway"  # of what stock clients publish


class Site:
    """A gateway with a route that keeps, the broker behind it, and a device."""

    def __init__(self, central: ScriptedBroker, broker: Broker, route: Route, device: Client, clock: Clock) -> None:
        self.central = central
        self.broker = broker
        self.route = route
        self.device = device
        self.clock = clock
        self.batch = 0

    @property
    def keeping(self) -> Keeping:
        assert self.route.queue.keeping is not None
        return self.route.queue.keeping

    @property
    def log(self) -> MessageLog:
        return self.broker.log

    def received(self) -> list[Publish]:
        """What the broker got, statements too."""
        return [packet for connection in self.central.publishes for packet in connection]

    def publishes(self) -> list[list[tuple[str, int, bytes]]]:
        """The topic, number and payload of each message in each PUBLISH that the broker got, alone or in a batch."""
        return [
            [(one.topic, one.seq, one.payload) for one in decode_batch(packet.payload).messages()]
            if packet.properties.get(CONTENT_TYPE) == BATCH_TYPE
            else [(packet.topic, seq_of(packet), bytes(packet.payload))]
            for packet in self.received()
        ]

    def sent(self) -> list[tuple[int, bytes]]:
        """The numbers and payloads of what the device published, as the broker got them."""
        return [(seq, payload) for some in self.publishes() for topic, seq, payload in some if topic == "a"]

    def count(self, number: int) -> int:
        """How often the broker got a message."""
        return [payload for _, payload in self.sent()].count(b"%d" % number)

    def has(self, number: int) -> bool:
        """Whether the broker got a message."""
        return self.count(number) > 0

    def statements(self) -> int:
        """How many statements the broker got."""
        return sum(one.topic.startswith("holdfast/statement/") for one in self.received())

    async def publish(self, numbers: Iterable[int]) -> None:
        """The device publishes messages, and the broker acknowledges them."""
        for number in numbers:
            await self.device.publish("a", b"%d" % number)
        await until(lambda: self.keeping.acknowledged == self.log.head)

    async def publish_long_before(self, numbers: Iterable[int], later: int) -> None:
        """The device publishes messages, and long enough after their acknowledgement a later one."""
        await self.publish(numbers)
        await self.look()
        await self.look(100)
        await self.publish([later])
        await self.look(20)

    async def settle(self, *but: int) -> None:
        """A receipt comes down: all that the broker got is settled, but for these messages."""
        lost = [b"%d" % number for number in but]
        await self.settle_numbers({seq_of(one) for one in self.received() if one.payload not in lost})

    async def settle_numbers(self, settled: set[int], *, retain: bool = True, batch: int = 0) -> None:
        """A receipt comes down for the messages of the gateway with these numbers."""
        self.batch += 1
        runs = runs_of(sorted(settled))
        high = runs.pop(0)[1] if runs and runs[0][0] == 1 else 0
        receipt = Receipt("0000abcd", batch or self.batch, [Settled(self.log.routes.own[1], high, runs)])
        identifier = 1000 + self.batch
        properties = {USER_PROPERTY: [("hf-id", f"00000001/{self.batch}/receipts")]}
        topic, payload = receipt_topic(ORIGIN), encode_receipt(receipt)
        self.central.command(Publish(topic, payload, 1, retain, False, identifier, properties))
        await until(lambda: identifier in self.central.pubacks)

    async def look(self, after_s: float = 0.0) -> None:
        self.clock.now_s += after_s
        await self.keeping.look()


def seq_of(packet: Publish) -> int:
    return decode_identity(dict(packet.properties[USER_PROPERTY])["hf-id"])[2]


def payloads_in(folder: Path) -> list[bytes]:
    """The payloads of what the device published, as far as the store has it."""
    return [message.payload for _, message in messages_in(folder) if message.topic == "a"]


@asynccontextmanager
async def site(folder: Path, monkeypatch: pytest.MonkeyPatch, **keys: Any) -> AsyncIterator[Site]:
    clock = Clock()
    monkeypatch.setattr("uplink.queue.keeping.monotonic", clock)
    store = keys.pop("store", StoreConfig(str(folder)))
    async with scripted_broker() as central, running_broker(folder, store=store) as broker:
        usual = {"until": "receipt", "subscribe": (), "direction": "out", "statement_interval_s": 600}
        route = route_of(broker, central.port, **{**usual, **keys})
        async with serving(route):
            await until(lambda: route.queue.state.connected)
            yield Site(central, broker, route, await connected(broker, "device"), clock)


async def test_what_is_acknowledged_stays_until_a_receipt_says_that_it_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, monkeypatch) as one:
        await one.publish(range(1, 6))
        await one.look()
        assert one.keeping.kept.position == 0
        await one.settle(4, 5)
        await one.look()
    assert payloads_in(tmp_path) == [b"4", b"5"]


async def test_a_restart_goes_on_keeping_and_hears_the_receipts_that_the_gateway_retains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, monkeypatch) as one:
        await one.publish(range(1, 6))
        await one.settle(5)
    async with site(tmp_path, monkeypatch) as one:
        await one.look()
    assert payloads_in(tmp_path) == [b"5"]


async def test_what_the_tables_have_passed_over_goes_again_under_its_identity_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, monkeypatch, resend_after_s=100) as one:
        await one.publish_long_before(range(1, 5), 5)
        before = one.sent()
        await one.settle(2, 4)
        await one.look()
        await until(lambda: len(one.sent()) == 7)
        assert one.sent() == [*before, before[1], before[3]]
        await one.settle()
        await one.look()
        assert one.route.queue.status().unproven_sent == 2
    assert payloads_in(tmp_path) == [b"5"]  # the newest one stays until there is another


async def test_nothing_goes_again_before_a_much_later_message_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, monkeypatch, resend_after_s=100) as one:
        await one.publish(range(1, 4))
        await one.look()
        await one.settle(1, 2)  # the third came together with the others, and another lander took it
        for _ in range(20):
            await one.look(30)
        await one.publish([4])
        await one.look(20)
        assert [one.count(number) for number in range(1, 5)] == [1, 1, 1, 1]
        await one.settle(1, 2)
        await one.look()
        await until(lambda: [one.count(number) for number in range(1, 5)] == [2, 2, 1, 1])


async def test_what_went_again_and_is_passed_over_again_goes_after_ever_longer_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, monkeypatch, resend_after_s=100) as one:
        await one.publish([1])
        await one.look()
        times = []
        for number in range(2, 60):
            count, now_s = one.count(1), one.clock.now_s
            await until(lambda: not one.keeping.is_due.is_set)
            await one.look(60)
            await one.publish([number])  # behind what goes again
            if one.count(1) > count:
                times.append(now_s)
            await one.look(20)
            await one.settle(1)
            await one.look(20)
        pauses = [after - before for before, after in pairwise(times)]
        assert len(pauses) >= 3
        assert all(later >= 1.5 * earlier for earlier, later in pairwise(pauses))


async def test_one_message_that_never_settles_holds_no_other_one_up_and_goes_no_more_often_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, monkeypatch, resend_after_s=100) as one:
        await one.publish([1])
        await one.look()
        for number in range(2, 100):
            await one.look(60)
            await one.publish([number])
            await one.look(20)
            await one.settle(1, *([69] if one.count(69) == 1 else []))
            await one.look(20)
            await until(lambda: not one.keeping.is_due.is_set)
        await one.publish([100])
        assert one.count(69) == 2
        assert 4 <= one.count(1) <= 8  # in 100 times resend_after_s, with pauses of 2, 4, 8, 16, 32 times
        assert sum(one.count(number) for number in range(2, 101)) == 100


async def test_in_a_route_over_batches_a_message_goes_again_in_a_batch_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, monkeypatch, resend_after_s=100, framing="batch", batch_max_age_ms=1) as one:
        await one.publish_long_before([1], 2)
        await one.settle_numbers({*range(2, one.log.head + 1)})
        await one.look()
        await until(lambda: one.publishes().count([("a", 1, b"1")]) == 2)
        again = one.received()[-1]
        assert again.topic == "holdfast/batch/gateway-1/central" and USER_PROPERTY not in again.properties


async def test_what_the_broker_has_no_room_for_when_it_goes_again_holds_up_nothing_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, monkeypatch, resend_after_s=100, inflight_window=4) as one:  # so one goes again at a time
        await one.publish_long_before(range(1, 4), 4)
        await one.settle(1, 2)
        one.central.puback = lambda packet: QUOTA_EXCEEDED if packet.payload == b"1" else SUCCESS
        await one.look()
        await until(lambda: one.count(1) == one.count(2) == 2)


async def test_a_route_without_news_asks_the_tables_with_a_statement_how_far_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, monkeypatch, resend_after_s=100) as one:
        await one.publish([1])
        await one.look()
        await one.look(90)
        await one.publish([2])
        await one.look()
        statements = one.statements()
        for _ in range(9):
            await one.look(12.5)
        assert one.log.head == 2, "a statement that is made now would prove nothing of the second message"
        await one.look(12.5)
        await until(lambda: one.statements() > statements)
        await until(lambda: one.keeping.acknowledged == one.log.head)
        await one.look(12.5)
        await one.settle(1, 2)
        await one.look()
        await until(lambda: one.count(1) == one.count(2) == 2)


async def test_what_is_older_than_the_limit_is_given_up_and_leaves_a_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, monkeypatch, keep_max_age_s=3600) as one:
        await one.publish(range(1, 4))
        await one.settle(2, 3)
        await one.look()
        real = time.time()
        monkeypatch.setattr("uplink.queue.keeping.time", lambda: real + 4000)
        await one.look(60)
        assert one.keeping.kept.position >= 3
    assert stored(tmp_path, RANGES)[0] == (UNPROVEN, "route/central", 2, 3, 2)


async def test_many_messages_that_are_older_than_the_limit_are_given_up_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, monkeypatch, keep_max_age_s=3600) as one:
        await one.publish(range(1, 101))
        commits = sum(one.log.counters.commit_s.counts)
        real = time.time()
        monkeypatch.setattr("uplink.queue.keeping.time", lambda: real + 4000)
        await one.look(60)
        assert one.keeping.kept.position >= 100
        assert sum(one.log.counters.commit_s.counts) <= commits + 10
    assert stored(tmp_path, RANGES)[0] == (UNPROVEN, "route/central", 1, 100, 100)


async def test_a_full_store_gives_up_what_is_kept_and_refuses_nothing_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StoreConfig(str(tmp_path), max_messages=20, when_full="reject_incoming")
    async with site(tmp_path, monkeypatch, store=store) as one:
        await one.publish(range(1, 101))
        assert len(one.sent()) == 100
        await until(lambda: one.broker.counters.messages_dropped["unproven"] > 50)
        assert one.broker.counters.messages_dropped["rejected"] == 0


async def test_a_full_store_gives_up_what_is_kept_before_it_drops_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StoreConfig(str(tmp_path), max_messages=20)
    async with site(tmp_path, monkeypatch, store=store) as one:
        reader = await subscribed(one.broker, "reader", "b", clean_start=False)
        await reader.disconnect()
        await one.publish(range(1, 16))
        await one.device.publish("b", b"waits")
        await one.publish(range(16, 26))
        await until(lambda: one.broker.counters.messages_dropped["unproven"] > 0)
        assert one.broker.counters.messages_dropped["evicted"] == 0
        reader = await connected(one.broker, "reader", clean_start=False)
        assert (await reader.receive()).payload == b"waits"


async def test_a_receipt_that_cannot_be_read_is_told_and_settles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, monkeypatch) as one:
        await one.publish([1])
        one.central.command(Publish(receipt_topic(ORIGIN), b"hf1 0000abcd 1 xyz", 1, True, False, 7))
        await until(lambda: "is not a number" in one.route.queue.status().last_error)
        await one.look()
        assert one.keeping.kept.position == 0


async def test_a_receipt_that_settles_what_the_gateway_has_not_numbered_yet_settles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, monkeypatch) as one:
        await one.publish([1, 2])
        await one.settle_numbers({*range(1, one.log.head + 2)})
        await one.look()
        assert "has not given yet" in one.route.queue.status().last_error
        assert one.keeping.kept.position == 0
        await one.settle_numbers({*range(1, one.log.head + 1)})
        await one.look()
        assert one.keeping.kept.position >= 2


async def test_a_new_receipt_counts_also_if_the_broker_does_not_say_that_it_is_retained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of MQTT 3.1.1 sets RETAIN to 0 for clients that had subscribed before [3.1.1 MQTT-3.3.1-9]."""
    async with site(tmp_path, monkeypatch) as one:
        await one.publish([1, 2])
        head = one.log.head
        await one.settle_numbers({1, 2}, retain=False)
        await one.look()
        assert one.keeping.kept.position >= 2
        assert one.log.head == head, "it takes no number of this gateway"
        later = await subscribed(one.broker, "later", "hf/receipt/#")
        assert decode_receipt((await later.receive()).payload).batch == 1


@pytest.mark.parametrize("subscribe", [(), ("#",)])
async def test_a_receipt_that_came_while_the_route_was_away_is_heard_when_it_is_back(
    subscribe: tuple[str, ...], tmp_path: Path
) -> None:
    """A broker keeps no message of QoS 0 for a session, nor more than its queue holds; it retains all receipts."""
    rules = tmp_path / "rules"
    rules.write_text("allow * publish,subscribe #\nallow * publish hf/receipt/#\n")
    payload = encode_receipt(Receipt("0000abcd", 1, [Settled(1, 9, [])]))
    async with (
        running_broker(tmp_path / "central", acl=str(rules)) as central,
        running_broker(tmp_path / "edge") as edge,
    ):
        route = route_of(edge, tcp_port(central), until="receipt", subscribe=subscribe, statement_interval_s=600)
        async with serving(route):
            await until(lambda: route.queue.state.connected)
        job = await connected(central, "job")
        job.send(receipt_topic("x"), payload, qos=0, retain=True)
        await job.publish("marker")
        async with serving(route):
            await until(lambda: route.queue.keeping is not None and route.queue.keeping.settled_up_to("x", 1, 1) == 9)


async def test_in_a_chain_each_gateway_keeps_what_the_tables_lack_and_the_receipts_come_down_to_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("uplink.queue.keeping.monotonic", clock)
    rules = tmp_path / "rules"
    rules.write_text("allow * publish,subscribe #\nallow * identify *\n")
    keys: dict[str, Any] = {"until": "receipt", "subscribe": (), "direction": "out", "resend_after_s": 100}
    async with (
        scripted_broker() as central,
        running_broker(tmp_path / "mid", acl=str(rules)) as mid,
        running_broker(tmp_path / "edge") as edge,
    ):
        upper = route_of(mid, central.port, statement_interval_s=600, **keys)
        lower = route_of(edge, tcp_port(mid), statement_interval_s=600, **keys)
        async with serving(upper), serving(lower):
            one = Site(central, edge, lower, await connected(edge, "device"), clock)
            both = [route.queue.keeping for route in (upper, lower) if route.queue.keeping is not None]
            await until(lambda: upper.queue.state.connected and lower.queue.state.connected)
            for numbers, wait_s in (([1, 2, 3], 100), ([4], 20)):
                await one.publish(numbers)
                await until(partial(one.has, numbers[-1]))
                for keeping in both:
                    await keeping.look()
                clock.now_s += wait_s
                for keeping in both:
                    await keeping.look()
            await one.settle(2)
            _, epoch = edge.log.routes.own
            await until(lambda: all(keeping.settled_up_to(ORIGIN, epoch, 3) >= 3 for keeping in both))
            for keeping in both:
                await keeping.look()
            assert [keeping.kept.position for keeping in both] == [1, 1]
            await until(lambda: one.count(2) > 1)  # each may send it again: the tables count it once
            assert [one.count(number) for number in (1, 3, 4)] == [1, 1, 1]


async def test_a_receipt_that_does_not_count_is_not_handed_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, monkeypatch) as one:
        here = await subscribed(one.broker, "here", "hf/receipt/#")
        for batch in (5, 4, 6):
            await one.settle_numbers(set(), batch=batch)
        assert [decode_receipt((await here.receive()).payload).batch for _ in range(2)] == [5, 6]


async def test_a_route_that_keeps_no_longer_lets_go_of_what_it_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, monkeypatch) as one:
        await one.publish(range(1, 4))
    async with (
        scripted_broker() as central,
        running_broker(tmp_path) as broker,
        serving(route_of(broker, central.port)),
    ):
        device = await connected(broker, "device")
        await device.publish("a", b"4")
        await until(lambda: bool(central.publishes) and b"4" in [one.payload for one in central.publishes[-1]])
    assert payloads_in(tmp_path) == [b"4"]


async def test_receipts_are_handed_down_retained_and_take_none_of_the_gateways_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with site(tmp_path, monkeypatch) as one:
        await one.publish([1])
        here = await subscribed(one.broker, "here", "hf/receipt/#")
        await one.settle()
        there = await subscribed(one.broker, "later", "hf/receipt/#")
        found = [await client.receive() for client in (here, there)]
        assert [(packet.topic, packet.qos) for packet in found] == [(receipt_topic(ORIGIN), 0)] * 2
        assert [decode_receipt(packet.payload).batch for packet in found] == [1, 1]
        await one.publish([2])
        assert seq_of(one.received()[-1]) == seq_of(one.received()[0]) + 1
        assert "identity replaced" not in caplog.text


async def test_what_goes_again_has_no_route_number_and_is_not_retained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, monkeypatch, resend_after_s=100) as one:
        await one.device.publish("a", b"1", retain=True)
        await one.publish_long_before([], 2)
        await one.settle(1)
        await one.look()
        await until(lambda: one.count(1) == 2)
        first, _, again = [one for one in one.central.publishes[-1] if one.topic == "a"]
        assert (first.retain, again.retain) == (True, False)
        assert [dict(one.properties[USER_PROPERTY]).get("hf-via") is None for one in (first, again)] == [False, True]
