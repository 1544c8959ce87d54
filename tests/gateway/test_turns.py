"""One client that asks for much: what it may have is bounded, and others get their turns meanwhile."""

import asyncio
import itertools
import socket
from pathlib import Path
from typing import Any

import pytest

from gateway.config.schema import LimitsConfig
from gateway.delivery.sender import Sender
from gateway.loop.pace import SLICE_S, Slice, TimeShares
from gateway.message import Message
from gateway.sessions.offers import Offers
from gateway.store import Cursor, Grant
from gateway.subscriptions import PATTERNS_MAX, Subscription, SubscriptionTree
from tests.gateway.support import LONG_S, all_connected, connected, running, tcp_port, until
from wire.codec.packets import (
    MQTT_3_1_1,
    Disconnect,
    Pingreq,
    Puback,
    Publish,
    Pubrec,
    Unsubscribe,
    encode,
)
from wire.properties import SUBSCRIPTION_IDENTIFIER


@pytest.mark.parametrize("head", [b"\x10", b"\x30", b"\x82", b"\xf0"])
async def test_a_client_that_claims_256_mb_is_told_at_once_that_it_is_too_much(tmp_path: Path, head: bytes) -> None:
    """Before anything of it has come, let in or not; no memory is set aside for it."""
    claim = head + b"\xff\xff\xff\x7f"
    async with running(tmp_path) as broker:
        with socket.create_connection(("127.0.0.1", tcp_port(broker))) as stranger:
            stranger.sendall(claim)
            bystander = await connected(broker, "bystander")  # the broker has read by then
            stranger.settimeout(LONG_S)
            assert stranger.recv(100)[:1] in (b"\x20", b"")
        client = await connected(broker, "client")
        client.write(claim)
        assert (await client.expect(Disconnect)).reason_code in (0x82, 0x95)
        await bystander.publish("a")


async def test_subscriptions_without_end_are_refused_and_others_go_on(tmp_path: Path) -> None:
    async with running(tmp_path, limits=LimitsConfig(subscriptions=100)) as broker:
        bomber, other = await all_connected(broker, "bomber", "other")
        assert await bomber.subscribe(*(f"a/{number}" for number in range(60))) == [1] * 60
        more = [f"b/{number}" for number in range(30)] + [f"$share/g/{number}" for number in range(30)]
        assert await bomber.subscribe(*more) == [1] * 31 + [0x97] * 29  # a shared one counts as ten
        assert await bomber.subscribe("a/1", options=2) == [2]  # it has that one
        await bomber.unsubscribe("a/1")
        assert await bomber.subscribe("c") == [1]
        assert await other.subscribe("c") == [1]
        await bomber.publish("e", b"")
    async with running(tmp_path, limits=LimitsConfig(subscriptions=100)) as broker:
        assert await (await connected(broker, "bomber")).subscribe("d") == [0x97]
        older = await connected(broker, "older", protocol_level=MQTT_3_1_1, clean_start=True, session_expiry_s=0)
        assert await older.subscribe(*(f"a/{number}" for number in range(101))) == [1] * 100 + [0x80]


async def test_a_filter_of_ten_thousand_levels_counts_as_a_thousand(tmp_path: Path) -> None:
    """And a name as deep disturbs no other client."""
    deep = "/".join("+" * 10_000)
    async with running(tmp_path, limits=LimitsConfig(subscriptions=1500)) as broker:
        bomber = await connected(broker, "bomber")
        assert await bomber.subscribe(deep) == [1]
        assert await bomber.subscribe(f"{deep}/#") == [0x97]
        other = await connected(broker, "other")
        await other.publish("/".join("a" * 10_000), b"deep")
        assert (await bomber.receive()).payload == b"deep"
        await other.publish("a", b"")


async def test_filters_that_all_match_bring_a_message_once(tmp_path: Path) -> None:
    """Every mixture of a name and wildcards: as many filters as there are, and a tree that forks at each level."""
    filters = ["/".join(levels) for levels in itertools.product("a+", repeat=6)]
    async with running(tmp_path) as broker:
        bomber = await connected(broker, "bomber")
        for number, topic_filter in enumerate(filters):
            bomber.protocol.subscribe([(topic_filter, 1)], {SUBSCRIPTION_IDENTIFIER: [1 + number]})
        bomber.flush()
        for _ in filters:
            await bomber.event()
        other = await connected(broker, "other")
        await other.publish("/".join("a" * 6), b"one")
        packet = await bomber.receive()
        assert sorted(packet.properties[SUBSCRIPTION_IDENTIFIER]) == list(range(1, len(filters) + 1))
        await bomber.expect_no_message()


@pytest.mark.parametrize("share", ["", "$share/g/"])
async def test_a_sessions_filters_fork_only_so_often(tmp_path: Path, share: str) -> None:
    """The filters that can match one topic name are limited, whatever it is; other filters are not."""
    filters = [share + "/".join(levels) + "/#" for levels in itertools.product("a+", repeat=8)]
    async with running(tmp_path) as broker:
        bomber = await connected(broker, "bomber")
        codes = await bomber.subscribe(*filters)
        assert sum(code == 1 for code in codes) == PATTERNS_MAX and codes.count(0x97) == len(filters) - PATTERNS_MAX
        assert await bomber.subscribe(*(f"{share}{number}/+/a/#" for number in range(300))) == [0x97] * 300
        await bomber.unsubscribe(filters[0])
        assert await bomber.subscribe(*(f"{share}{number}/+/a/#" for number in range(300))) == [1] * 300
        assert await bomber.subscribe(*(f"{share}a/{number}" for number in range(100))) == [0x97 if share else 1] * 100


async def test_share_names_without_end_do_not_all_get_one_message(tmp_path: Path) -> None:
    """Each of them is a consumer of its own."""
    async with running(tmp_path) as broker:
        bomber = await connected(broker, "bomber")
        codes = await bomber.subscribe(*(f"$share/{number}/a" for number in range(200)))
        assert codes == [1] * PATTERNS_MAX + [0x97] * 100


@pytest.mark.parametrize("qos", [0, 1])
async def test_messages_that_many_filters_match_leave_others_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qos: int
) -> None:
    """However many sessions the filters are of, no turn of the event loop holds their names against more than a few."""
    matched = most = 0

    def count(tree: SubscriptionTree[Any], topic: str) -> list[Any]:
        nonlocal matched
        matched += 1
        return match(tree, topic)

    async def watch() -> None:
        nonlocal matched, most
        while True:
            most, matched = max(most, matched), 0
            await asyncio.sleep(0)

    match = SubscriptionTree.match
    monkeypatch.setattr(SubscriptionTree, "match", count)
    monkeypatch.setattr("gateway.loop.pace.SLICE_S", 0.0)
    topics = ["/".join("a" * 6) + f"/{number}" for number in range(150)]
    filters = ["/".join(levels) + "/#" for levels in itertools.product("a+", repeat=6)]
    async with running(tmp_path) as broker:
        sessions = [await connected(broker, f"bomber-{number}", receive_maximum=10) for number in range(8)]
        for session in sessions:
            await session.subscribe(*filters)
        talks = await connected(broker, "talks")
        for topic in topics:  # names that are known go the hot path
            await talks.publish(topic)
        await (await connected(broker, "other")).subscribe("+")  # and what was found for them is forgotten
        matched = 0
        watching = asyncio.create_task(watch())
        for _ in range(2):
            for topic in topics:
                talks.protocol.publish(topic, b"", qos=qos)
            talks.flush()
        talks.send("end")
        answers = len(topics) * 2 * qos + 1
        for _ in range(answers):
            await talks.expect(Puback)
        watching.cancel()
        assert 0 < most <= 2 + len(sessions)  # its publisher's, and those of the sessions that it is sent to


async def test_messages_of_qos_0_are_given_out_before_many_more_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for its subscribers is in memory, with all of these."""
    taken = sent = most = 0
    offer, send_now = Offers.offer, Sender.send_now

    def count_taken(offers: Offers, message: Message) -> None:
        nonlocal taken, most
        taken += message.topic == "a"
        most = max(most, taken - sent // 10)
        offer(offers, message)

    def count_sent(sender: Sender, message: Message, grant: Grant) -> None:
        nonlocal sent
        sent += message.topic == "a"
        send_now(sender, message, grant)

    monkeypatch.setattr(Offers, "offer", count_taken)
    monkeypatch.setattr(Sender, "send_now", count_sent)
    monkeypatch.setattr("gateway.loop.pace.SLICE_S", 0.0)
    monkeypatch.setattr("gateway.sessions.offers.HANDOUT_MOST", 50)
    async with running(tmp_path) as broker:
        for number in range(10):
            await (await connected(broker, f"wants-{number}")).subscribe("a")
        talks = await connected(broker, "talks")
        for _ in range(200):
            talks.protocol.publish("a", b"", qos=0)
        talks.flush()
        talks.send("end")
        await talks.expect(Puback)
        await until(lambda: sent == 2000, "all are given out")
        assert most <= 10


@pytest.mark.parametrize("may", [True, False])
async def test_a_filter_below_sys_that_is_named_thousands_of_times_brings_each_message_once(
    tmp_path: Path, may: bool
) -> None:
    """And none where it is refused."""
    acl = tmp_path / "acl"
    acl.write_text("allow * publish,subscribe #\n" + "allow * subscribe $SYS/#\n" * may)
    async with running(tmp_path, acl=str(acl)) as broker:
        await until(lambda: broker.services.publishing.announced, "the gateway speaks of itself")
        bomber = await connected(broker, "bomber")
        codes = await bomber.subscribe(*["$SYS/#"] * 2_000, *["$SYS/broker/#"] * 2_000, "end", options=0)
        assert codes == [0 if may else 0x87] * 4_000 + [0]
        said = len(broker.services.publishing.announced)
        await (await connected(broker, "other")).publish("end")
        topics: list[str] = []
        while (packet := await bomber.receive()).topic != "end":
            topics.append(packet.topic)
        assert len(topics) == 2 * said * may and set(topics) == set(broker.services.publishing.announced if may else ())


async def test_a_session_with_many_shared_subscriptions_comes_back_slice_by_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And gets what waits for each of its groups; one that is given up meanwhile is not fed."""
    monkeypatch.setattr("gateway.loop.pace.SLICE_S", 0.0)
    opened = most = 0

    def count(sender: Sender, cursor: Cursor, shared: Subscription) -> None:
        nonlocal opened
        opened += 1
        open_source(sender, cursor, shared)

    async def watch() -> None:
        nonlocal opened, most
        while True:
            most, opened = max(most, opened), 0
            await asyncio.sleep(0)

    open_source = Sender.open_source
    async with running(tmp_path) as broker:
        filters = [f"$share/g/{number}" for number in range(400)]
        bomber = await connected(broker, "bomber")
        assert await bomber.subscribe(*filters) == [1] * 400
        bomber.cut()
        publisher = await connected(broker, "publisher")
        for number in range(400):
            await publisher.publish(str(number))
        monkeypatch.setattr(Sender, "open_source", count)
        watching = asyncio.create_task(watch())
        bomber = await connected(broker, "bomber")
        assert {(await bomber.receive()).topic for _ in range(400)} == {str(number) for number in range(400)}
        watching.cancel()
        assert most == 1


FLOODS = {
    "PINGREQs": encode(Pingreq()),
    "empty PUBLISHes of QoS 0": encode(Publish("a", b"", 0)),
    "UNSUBSCRIBEs": encode(Unsubscribe(1, ["a"])),
    "PUBLISHes of QoS 2 with one packet identifier": encode(Publish("a", b"", 2, packet_identifier=1)),
    "PUBRECs of nothing": encode(Pubrec(1)),
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_flood_of_small_packets_leaves_others_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flood: str
) -> None:
    """The event loop turns as often as there are slices: here each is over at once."""
    monkeypatch.setattr("gateway.loop.pace.SLICE_S", 0.0)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with running(tmp_path) as broker:
        bomber = await connected(broker, "bomber", clean_start=True, session_expiry_s=0)
        counting = asyncio.create_task(count_turns())
        bomber.write(FLOODS[flood] * 3_000 + encode(Publish("b", b"end", 1, packet_identifier=2)))
        await until(lambda: broker.counters.messages_received[1] == 1, "the last packet was handled")
        counting.cancel()
        assert turns >= 3_000


async def test_connections_of_one_owner_share_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no client gains turns by more connections; when the others are done, one has it alone again."""
    now_s = 0.0
    monkeypatch.setattr("gateway.loop.pace.time.perf_counter", lambda: now_s)
    time_shares = TimeShares()
    with time_shares.enter("user one") as time_share, time_shares.enter("user two") as another:
        alone, beside = Slice(time_share), Slice(another)
        with time_shares.enter("user one"), time_shares.enter("user one"), time_shares.enter("user one"):
            shared = Slice(time_share)
            now_s += SLICE_S / 3
            assert (alone.is_over, beside.is_over, shared.is_over) == (False, False, True)
        await shared.give_way()
        now_s += SLICE_S / 2
        assert not shared.is_over
        now_s += SLICE_S
        assert alone.is_over and beside.is_over and shared.is_over


async def test_pings_and_requests_count_for_a_clients_rate(tmp_path: Path) -> None:
    async with running(tmp_path, limits=LimitsConfig(messages_per_s=1)) as broker:
        for name, packet, answer_size in (("pings", encode(Pingreq()), 2), ("asks", encode(Unsubscribe(1, ["a"])), 6)):
            fast = await connected(broker, name, address=f"127.0.1.{answer_size}")
            other = await connected(broker, f"beside {name}", address=f"127.0.2.{answer_size}")
            fast.write(packet * 300)  # five minutes' worth
            await fast.read(300 * answer_size)
            fast.write(encode(Publish("a", b"", 1, packet_identifier=1)))
            before = broker.counters.messages_received[1]
            await other.publish("a", b"")  # it was read behind the other one's, or that one waits
            await other.publish("a", b"")
            assert broker.counters.messages_received[1] == before + 2
