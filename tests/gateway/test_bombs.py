"""Packets that are small on the line and large in memory or in work: other clients notice nothing."""

import asyncio
import gc
import itertools
import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.auth.accounts import make_account, save_account
from gateway.config.schema import LimitsConfig, StoreConfig
from gateway.delivery.sender import Sender
from gateway.delivery.window import Window
from gateway.store.consumers.audience import SUBSCRIPTIONS_REMEMBERED
from gateway.subscriptions import SubscriptionTree
from tests.gateway.steps import session_of, with_publisher
from tests.gateway.store.support import disk_full
from tests.gateway.support import LONG_S, Client, connected, running, subscribed, tcp_port, until
from wire.codec.packets import (
    MQTT_3_1_1,
    RETAIN_NEVER,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Pubrec,
    Suback,
    Unsuback,
    Will,
    encode,
)
from wire.properties import USER_PROPERTY, WILL_DELAY_INTERVAL
from wire.reasons import QUOTA_EXCEEDED, SERVER_UNAVAILABLE
from wire.topics import matches


def stored_count(folder: Path, question: str) -> int:
    with closing(sqlite3.connect(folder / "messages.sqlite")) as database:
        return int(database.execute(question).fetchone()[0])


async def test_a_long_filter_counts_as_many(tmp_path: Path) -> None:
    """It takes as much memory, and is written with each change of its session."""
    async with running(tmp_path, limits=LimitsConfig(subscriptions=100)) as broker:
        bomber = await connected(broker, "bomber")
        assert await bomber.subscribe("x" * 60_000) == [0x97]
        assert await bomber.subscribe("x" * 30_000, "y" * 30_000) == [1, 0x97]
        await bomber.unsubscribe("x" * 30_000)
        assert await bomber.subscribe("y" * 30_000) == [1]


async def test_one_long_subscribe_leaves_others_their_turns(tmp_path: Path) -> None:
    """It is worked on a few filters at a time; a client that takes the session over meanwhile gets an answer."""
    filters = [(f"a/{number}", RETAIN_NEVER) for number in range(5_000)]
    async with running(tmp_path) as broker:
        bomber = await connected(broker, "bomber", clean_start=True, session_expiry_s=0)
        session = session_of(broker, "bomber")
        seen = set()

        async def look() -> None:
            while True:
                seen.add(len(session.cursor.filters))
                await asyncio.sleep(0)

        looking = asyncio.create_task(look())
        bomber.protocol.subscribe(filters)
        bomber.flush()
        assert (await bomber.expect(Suback)).reason_codes == [0] * len(filters)
        assert len(seen - {0, len(filters)}) > 10
        looking.cancel()
        await bomber.unsubscribe(*(topic_filter for topic_filter, _ in filters))
        bomber.protocol.subscribe(filters)
        bomber.flush()
        await until(lambda: session.cursor.filters, "half of it is done")
        other = await subscribed(broker, "bomber", "a/1", clean_start=True)
        await (await connected(broker, "publisher")).publish("a/1", b"once")
        assert (await other.receive()).payload == b"once"


@pytest.mark.parametrize("kind", ["SUBSCRIBE", "UNSUBSCRIBE"])
async def test_a_packet_with_more_than_ten_thousand_filters_ends_its_connection(tmp_path: Path, kind: str) -> None:
    """It is read as a whole, and nothing else happens meanwhile."""
    async with running(tmp_path) as broker:
        for count, code in ((10_000, None), (10_001, 0x97)):
            bomber = await connected(broker, "bomber")
            filters = ["a"] * count
            if kind == "SUBSCRIBE":
                bomber.protocol.subscribe([(one, RETAIN_NEVER) for one in filters])
            else:
                bomber.protocol.unsubscribe(filters)
            bomber.flush()
            answer = await bomber.event()
            if code is None:
                assert isinstance(answer, Suback | Unsuback) and len(answer.reason_codes) == count
            else:
                assert isinstance(answer, Disconnect) and answer.reason_code == code


async def test_a_packet_with_more_than_ten_thousand_user_properties_ends_its_connection(tmp_path: Path) -> None:
    """Ten thousand are read, and the message refused."""
    async with running(tmp_path) as broker:
        client = await connected(broker, "client")
        client.send("a", b"", qos=1, properties={USER_PROPERTY: [("", "")] * 10_000})
        assert (await client.expect(Puback)).reason_code == 0x97
        client.send("a", b"", qos=1, properties={USER_PROPERTY: [("", "")] * 10_001})
        assert (await client.expect(Disconnect)).reason_code == 0x97


async def test_names_that_many_filters_match_are_forgotten_again(tmp_path: Path) -> None:
    """What is remembered of a topic name is as large as the number of its subscriptions."""
    filters = ["/".join(levels) + "/#" for levels in itertools.product("a+", repeat=6)]
    async with running(tmp_path) as broker:
        await subscribed(broker, "bomber", *filters)
        (cursor,) = broker.log.audience.takers("a/" * 6 + "0")
        before = sum(map(sys.getrefcount, cursor.filters.values()))
        for number in range(1, 8_000):
            assert len(broker.log.audience.takers("a/" * 6 + str(number))[cursor]) == len(filters)
        assert sum(map(sys.getrefcount, cursor.filters.values())) - before <= SUBSCRIPTIONS_REMEMBERED


@pytest.mark.parametrize("of_the_will", [False, True])
async def test_a_stranger_is_not_kept_with_thousands_of_user_properties(tmp_path: Path, of_the_will: bool) -> None:
    """Five bytes of each are 160 in memory, for as long as its password waits or its will does."""
    many = {USER_PROPERTY: [("", "")] * 1_001}
    few = {USER_PROPERTY: [("", "")] * 1_000}
    async with running(tmp_path) as broker:
        for properties, code in ((many, 0x97), (few, 0)):
            will = Will("will", b"", properties=properties) if of_the_will else None
            connect = Connect("client", True, 0, None, None, will, {} if of_the_will else properties)
            reader, writer = await asyncio.open_connection("127.0.0.1", tcp_port(broker))
            writer.write(encode(connect))
            assert (await asyncio.wait_for(reader.readexactly(4), LONG_S))[3] == code
            writer.transport.abort()


async def test_a_message_with_thousands_of_user_properties_is_refused_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await connected(broker, "client")
        for count, code in ((1_001, 0x97), (1_000, 0x10)):
            client.send("a", b"", qos=1, retain=True, properties={USER_PROPERTY: [("", "")] * count})
            assert (await client.expect(Puback)).reason_code == code
        assert broker.log.space.retained.topics == 0  # an empty one is none
        client.send("a", b"", qos=2, properties={USER_PROPERTY: [("", "")] * 1_001})
        assert (await client.expect(Pubrec)).reason_code == 0x97


async def test_messages_that_a_full_store_holds_up_stay_with_their_client(tmp_path: Path) -> None:
    """As many as fit a megabyte are held, and the line holds the others."""
    store = StoreConfig(str(tmp_path), max_messages=1, when_full="flow_control")
    async with running(tmp_path, store=store) as broker:
        away = await subscribed(broker, "away", "a", session_expiry_s=1000)
        away.cut()
        bomber = await connected(broker, "bomber")
        await bomber.publish("a", bytes(700_000))  # the store is full once this one is committed
        for _ in range(19):
            bomber.protocol.publish("a", bytes(700_000))
        bomber.flush()
        await until(lambda: broker.counters.messages_received[1] >= 3, "one is stored, two are held")
        bystander = await connected(broker, "bystander")
        for _ in range(100):
            await bystander.ping()
        assert broker.counters.messages_received[1] <= 10
        away = await connected(broker, "away", clean_start=False, session_expiry_s=1000)
        for _ in range(20):
            assert len((await away.receive()).payload) == 700_000


async def test_a_client_that_takes_nothing_cannot_ask_for_more_and_more(tmp_path: Path) -> None:
    """A filter that matches more retained messages than may be kept for it is refused, and is no subscription."""
    count = 300
    async with with_publisher(tmp_path, limits=LimitsConfig(kept_bytes=1_048_576)) as (broker, publisher):
        for number in range(count):
            await publisher.publish(f"a/{number}/{'x' * 600}", b"x", retain=True)
        subscriber = await connected(broker, "subscriber", receive_maximum=1)
        for filters in ([("a/#", 1)], [("a/#", 1)], [("+/+/+", 1), ("+/#", 1)], [("c", 1)]):
            subscriber.protocol.subscribe(filters)
        subscriber.flush()
        codes: list[int] = []
        taken: Publish | None = None
        while len(codes) < 5:
            match await subscriber.event():
                case Suback() as suback:
                    codes += suback.reason_codes
                case Publish() as packet:
                    taken = packet
        assert codes == [1, 1, 1, 0x97, 1]
        if taken is not None:
            subscriber.acknowledge(taken)
        for _ in range(3 * count - (taken is not None)):
            await subscriber.receive()
        await publisher.publish("d", b"not for +/#, which was refused")
        await publisher.publish("c", b"marker")
        assert (await subscriber.receive()).topic == "c"
        assert await subscriber.subscribe("+/#") == [1]  # it has taken them
        for _ in range(count):
            await subscriber.receive()
    assert stored_count(tmp_path, "SELECT count(*) FROM owed") == 0


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_subscribe_that_fails_leaves_nothing_on_its_owners_account(tmp_path: Path, qos: int) -> None:
    """What it had found is looked for again by the next one, for which there is room as before."""
    async with with_publisher(tmp_path, limits=LimitsConfig(kept_bytes=1_048_576)) as (broker, publisher):
        for number in range(10):
            await publisher.publish(f"a/{number}/{'x' * 60_000}", b"x", retain=True)
        durable: dict[str, Any] = {"session_expiry_s": 1_000, "clean_start": False}
        subscriber = await connected(broker, "subscriber", **durable)
        with disk_full():
            subscriber.protocol.subscribe([("a/#", qos)])
            subscriber.flush()
            await subscriber.expect(Disconnect)
        subscriber = await connected(broker, "subscriber", **durable)
        assert await subscriber.subscribe("a/#", options=qos) == [qos]
        assert len({(await subscriber.receive()).topic for _ in range(10)}) == 10
    assert stored_count(tmp_path, "SELECT count(*) FROM owed") == 0


async def test_retained_messages_are_searched_past_the_commits_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece of a search, however long the names are, is never part of a commit."""
    monkeypatch.setattr("gateway.loop.pace.SLICE_S", 0.0)
    looked_at: list[str] = []

    def look(topic_filter: str, topic: str) -> bool:
        looked_at.append(threading.current_thread().name)
        return matches(topic_filter, topic)

    monkeypatch.setattr("gateway.store.tables.retained.matches", look)
    async with with_publisher(tmp_path) as (broker, publisher):
        for number in range(50):
            await publisher.publish(f"{'a/' * 5_000}{number}", b"x", retain=True)
        subscriber = await connected(broker, "subscriber")
        assert await subscriber.subscribe("a/#", "+/b") == [1, 1]
        assert len({(await subscriber.receive()).topic for _ in range(50)}) == 50
    assert len(looked_at) == 100 and not any(name.startswith("commit") for name in looked_at)


@pytest.mark.parametrize("as_one", ["user", "address"])
async def test_wills_in_many_names_are_counted_together(tmp_path: Path, as_one: str) -> None:
    """By user or, without one, by address; one that is replaced, or published, makes room again."""
    will = Will("will", b"x" * 60_000, 0, False, {WILL_DELAY_INTERVAL: 1_000})
    settings: dict[str, Any] = {"limits": LimitsConfig(kept_bytes=1_048_576)}
    login: dict[str, Any] = {}
    if as_one == "user":
        save_account(tmp_path / "accounts", make_account("bomber", b"x", with_scram=False))
        save_account(tmp_path / "accounts", make_account("other", b"x", with_scram=False))
        settings["accounts"] = str(tmp_path / "accounts")
        login = {"username": "bomber", "password": b"x"}
    async with running(tmp_path, **settings) as broker:
        codes, clients = [], []
        for number in range(12):
            client = Client(f"bomber-{number}", will=will, session_expiry_s=1_000, **login)
            await client.open(tcp_port(broker))
            codes.append((await client.expect(Connack)).reason_code)
            client.cut()
            clients.append(client)
        assert codes == [0] * 8 + [0x97] * 4
        await connected(broker, "bomber-3", will=will, clean_start=False, session_expiry_s=1_000, **login)
        await connected(broker, "without a will", **login)
        older = Client("older", will=will, protocol_level=MQTT_3_1_1, session_expiry_s=0, clean_start=True, **login)
        await older.open(tcp_port(broker))
        assert (await older.expect(Connack)).reason_code == SERVER_UNAVAILABLE
        if as_one == "user":
            await connected(broker, "other", will=will, username="other", password=b"x")
        again = await connected(
            broker, "bomber-4", clean_start=True, session_expiry_s=0, **login
        )  # its will is published
        await again.disconnect()
        await connected(broker, "bomber-9", will=will, **login)


async def test_subscriptions_of_many_sessions_are_counted_together(tmp_path: Path) -> None:
    """Also those of sessions from before the start, which count for the client that resumes them."""
    deep = ["/".join(f"{number}-{level}" for level in range(9)) + "/+" for number in range(100)]
    limits = LimitsConfig(kept_bytes=1_048_576)
    async with running(tmp_path, limits=limits) as broker:
        first, second = await connected(broker, "first"), await connected(broker, "second")
        assert await first.subscribe(*deep) == [1] * 100
        codes = await second.subscribe(*(f"b/{one}" for one in deep), *(f"c/{one}" for one in deep))
        granted = codes.count(1)
        assert 100 < granted < 200 and codes == [1] * granted + [0x97] * (200 - granted)
        await first.unsubscribe(*deep)
        assert await second.subscribe(*(f"c/{one}" for one in deep)) == [1] * 100
        assert 0 < (await first.subscribe(*deep)).count(0x97) < 100
    async with running(tmp_path, limits=limits) as broker:
        first = await connected(broker, "first", clean_start=False)
        second = await connected(broker, "second", clean_start=False)
        codes = await first.subscribe(*(f"d/{one}" for one in deep))
        assert codes.count(0x97) > 80
        await second.unsubscribe(*(f"c/{one}" for one in deep))
        assert (await first.subscribe(*(f"d/{one}" for one in deep))).count(0x97) < 20


async def test_owners_that_take_all_there_is_leave_each_other_one_its_part(tmp_path: Path) -> None:
    """Four users may have the gateway keep as much as all together; the fifth gets a fifth of that, and no more."""
    names = [f"user-{number}" for number in range(5)]
    for name in names:
        save_account(tmp_path / "accounts", make_account(name, b"x", with_scram=False))
    long_filters = [f"{number}{'x' * 60_000}" for number in range(10)]  # 121 KB each
    limits = LimitsConfig(kept_bytes=1_048_576)
    async with running(tmp_path, limits=limits, accounts=str(tmp_path / "accounts")) as broker:
        clients = [await connected(broker, name, username=name, password=b"x") for name in names]
        for client in clients[:4]:
            assert (await client.subscribe(*long_filters)).count(1) == 8
        assert await clients[4].subscribe("a/b/c") == [1]
        assert 4 <= (await clients[4].subscribe(*long_filters)).count(1) < 8


async def test_a_connect_is_not_kept_with_what_is_large_in_it(tmp_path: Path) -> None:
    """Neither its user properties nor its will, which is kept as one."""
    async with running(tmp_path) as broker:
        will = Will("will", b"x" * 50_000)
        reader, writer = await asyncio.open_connection("127.0.0.1", tcp_port(broker))
        gc.collect()
        writer.write(encode(Connect("keeps", True, 0, None, None, will, {USER_PROPERTY: [("a", "b" * 50_000)]})))
        await asyncio.wait_for(reader.readexactly(4), LONG_S)
        kept = [one for one in gc.get_objects() if isinstance(one, Connect) and one.client_id == "keeps"]
        assert len(kept) == 1 and kept[0].will is None and USER_PROPERTY not in kept[0].properties
        writer.transport.abort()


async def most_in_a_turn(counted: list[int], most: list[int]) -> None:
    """Keeps the largest number of calls that ``counted`` grew by in one turn of the event loop."""
    before = len(counted)
    while True:
        await asyncio.sleep(0)
        most[0], before = max(most[0], len(counted) - before), len(counted)


@pytest.mark.parametrize(("qos", "owner", "name"), [(0, Sender, "send_now"), (1, Window, "publish_together")])
async def test_one_message_to_many_subscribers_of_an_owner_leaves_others_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qos: int, owner: type, name: str
) -> None:
    """And each subscriber gets all messages in order."""
    monkeypatch.setattr("gateway.loop.pace.SLICE_S", 0.0)
    calls: list[int] = []
    original = getattr(owner, name)

    def count(*arguments: Any) -> Any:
        calls.append(1)
        return original(*arguments)

    async with running(tmp_path) as broker:
        subscribers = [await connected(broker, f"subscriber-{number}") for number in range(60)]
        for subscriber in subscribers:
            await subscriber.subscribe("a", options=qos)
        publisher, other = await connected(broker, "publisher"), await connected(broker, "other")
        monkeypatch.setattr(owner, name, count)
        most = [0]
        watching = asyncio.create_task(most_in_a_turn(calls, most))
        payloads = [b"%d" % number for number in range(5)]
        for payload in payloads:
            publisher.send("a", payload, qos=qos)
        for _ in range(2):  # the second one is read as soon as the first one is handled
            other.write(encode(Pingreq()))
            assert await other.read(2) == encode(Pingresp())
        assert len(calls) < len(payloads) * len(subscribers)
        for subscriber in subscribers:
            assert [(await subscriber.receive()).payload for _ in payloads] == payloads
        watching.cancel()
        assert most == [1]


async def test_a_will_of_qos_0_comes_behind_what_its_client_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the messages to many subscribers take many turns, and another connection takes the session over."""
    monkeypatch.setattr("gateway.loop.pace.SLICE_S", 0.0)
    async with running(tmp_path) as broker:
        subscribers = [await connected(broker, f"subscriber-{number}") for number in range(30)]
        for subscriber in subscribers:
            await subscriber.subscribe("a", options=0)
        client = await connected(broker, "client", will=Will("a", b"will", 0))
        for number in range(5):
            client.send("a", b"%d" % number, qos=0)
        again = await connected(broker, "client")
        again.send("a", b"again", qos=0)
        for subscriber in subscribers:
            received = [(await subscriber.receive()).payload for _ in range(7)]
            assert received == [b"0", b"1", b"2", b"3", b"4", b"will", b"again"]


async def test_sessions_that_end_together_leave_others_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are gone at once: what comes while their subscriptions leave is for the others alone."""
    monkeypatch.setattr("gateway.loop.pace.SLICE_S", 0.0)
    left: list[int] = []
    discard = SubscriptionTree.discard

    def count(tree: SubscriptionTree[Any], topic_filter: str, subscriber: Any) -> None:
        left.append(1)
        discard(tree, topic_filter, subscriber)

    async with running(tmp_path) as broker:
        bombers = [await connected(broker, f"bomber-{number}", session_expiry_s=0) for number in range(10)]
        for bomber in bombers:
            await bomber.subscribe("all", *[f"a/{number}" for number in range(100)])
        other = await subscribed(broker, "other", "all")
        monkeypatch.setattr(SubscriptionTree, "discard", count)
        most = [0]
        watching = asyncio.create_task(most_in_a_turn(left, most))
        for bomber in bombers:
            bomber.cut()
        await until(lambda: not broker.sessions.get("bomber-9"), "it has ended")
        other.send("all", b"x")
        packets = [await other.event(), await other.event()]
        assert {type(packet) for packet in packets} == {Puback, Publish}
        await until(lambda: len(left) == 1_010, "all have left")
        watching.cancel()
        assert most == [1]
        assert len(broker.log.audience.takers("all")) == 1
        assert not broker.log.audience.takers("a/7")
    assert stored_count(tmp_path, "SELECT count(*) FROM dropped") == 0


async def test_packets_whose_end_has_not_come_count_for_their_owner(tmp_path: Path) -> None:
    """Else 2,000 connections of one address hold 2 GB with the beginnings of packets."""
    limits = LimitsConfig(kept_bytes=1_048_576)
    async with running(tmp_path, limits=limits) as broker:
        clients = [await connected(broker, f"slow-{number}") for number in range(3)]
        packets = []
        for client in clients:
            client.protocol.publish("a", bytes(400_000), qos=1)
            packets.append(client.protocol.data_to_send())
        before = broker.counters.bytes_received
        clients[0].write(packets[0][:-1])
        clients[1].write(packets[1][:-1])
        await until(lambda: broker.counters.bytes_received >= before + 800_000, "both are there but for their ends")
        clients[2].write(packets[2][:-1])
        ended = await clients[2].event()
        assert isinstance(ended, Disconnect) and ended.reason_code == QUOTA_EXCEEDED
        for client, packet in zip(clients[:2], packets, strict=False):
            client.write(packet[-1:])
            assert await client.expect(Puback)
        again = await connected(broker, "slow-2")
        await again.publish("a", bytes(400_000))
