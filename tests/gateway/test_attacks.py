"""Attempts to get in, to get at what belongs to others, and to keep others out: the threat model, tried.

What is tried elsewhere, close to what defends it: guessing, floods of logins and their memory in `test_logins`; SCRAM
in `test_scram`; every rule of access in `test_access`; TLS versions, ciphers and certificates in `listeners/test_tls`;
slow and half-open connections, ten thousand of them, in `listeners/test_connection_limits`; web pages in
`listeners/test_websocket`; forged lines in `test_logs`; listeners that are open to strangers in `test_config`; what
takes more memory or time than it should in `test_bombs`.
"""

import asyncio
import itertools
import socket
from pathlib import Path
from typing import Any

import pytest
from argon2.low_level import verify_secret

from gateway.auth.accounts import make_account, save_account
from gateway.broker import Broker
from gateway.config.schema import LimitsConfig
from gateway.delivery.sender import Sender
from gateway.loop.pace import SLICE_S, Slice, TimeShares
from gateway.message import Message
from gateway.sessions.offers import Offers
from gateway.store import Cursor, Grant
from gateway.subscriptions import PATTERNS_MAX, Subscription, SubscriptionTree
from tests.gateway.support import LONG_S, Client, all_connected, connected, running, subscribed, tcp_port, until
from wire.codec.packets import (
    MQTT_3_1_1,
    MQTT_5,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Puback,
    Publish,
    Pubrec,
    Unsubscribe,
    Will,
    encode,
)
from wire.connection.authentication import ClientAuthentication
from wire.properties import RESPONSE_TOPIC, SUBSCRIPTION_IDENTIFIER

RULES = "deny * publish,subscribe locks/#\nallow * publish,subscribe #\nallow * subscribe $SYS/#\n"
BOSS = "allow boss publish,subscribe #\n"


async def refused(broker: Broker, name: str, **options: Any) -> int:
    """The reason code with which a client is not let in."""
    client = Client(name, **options)
    await client.open(tcp_port(broker))
    return (await client.expect(Connack)).reason_code


def accounts(folder: Path, *names: str) -> str:
    """An accounts file in which every user's password is the name."""
    for name in names:
        save_account(folder / "accounts", make_account(name, name.encode(), with_scram=False))
    return str(folder / "accounts")


def rules(folder: Path, text: str) -> str:
    (folder / "acl").write_text(text)
    return str(folder / "acl")


def guarded(folder: Path) -> dict[str, str]:
    """A gateway on which only the boss may have anything to do with locks."""
    return {"accounts": accounts(folder, "boss", "spy"), "acl": rules(folder, BOSS + RULES)}


def as_user(name: str) -> dict[str, Any]:
    return {"username": name, "password": name.encode()}


# Names


@pytest.mark.parametrize(("level", "connack"), [(MQTT_5, b"\0\x85"), (MQTT_3_1_1, b"\0\2")])
async def test_a_client_identifier_of_257_bytes_is_refused(tmp_path: Path, level: int, connack: bytes) -> None:
    """Each row of the store that tells of the client would else hold up to 64 KB of it."""
    async with running(tmp_path) as broker:
        await connected(broker, 128 * "é", protocol_level=level)
        longer = Client(128 * "é" + "x", protocol_level=level)
        await longer.open(tcp_port(broker))
        assert (await longer.read(4))[2:] == connack
        assert len(broker.sessions.all()) == 1


# Logging in


@pytest.mark.parametrize("user", ["admin", "root", "holdfast", "gateway", "user", ""])
async def test_there_are_no_default_credentials(tmp_path: Path, user: str) -> None:
    async with running(tmp_path, accounts=accounts(tmp_path, "alice")) as broker:
        assert await refused(broker, "client") == 0x87
        for word in (b"", user.encode(), b"admin", b"password"):
            assert await refused(broker, "client", username=user, password=word) == 0x86


async def test_a_wrong_password_and_an_unknown_user_get_one_answer_at_one_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is that of the hash; neither it nor the answer tells whether the user exists."""
    compared: list[list[bytes]] = []

    def verify(password_hash: bytes, *rest: Any) -> bool:
        compared.append(password_hash.split(b"$")[:4])
        return bool(verify_secret(password_hash, *rest))

    monkeypatch.setattr("argon2.low_level.verify_secret", verify)
    answers = []
    async with running(tmp_path, accounts=accounts(tmp_path, "alice")) as broker:
        for user in ("alice", "unknown"):
            client = Client("client", username=user, password=b"wrong")
            await client.open(tcp_port(broker))
            answers.append(await client.expect(Connack))
    assert answers[0] == answers[1] and answers[0].reason_code == 0x86
    assert compared == [[b"", b"argon2id", b"v=19", b"m=12288,t=3,p=1"]] * 2


async def test_a_login_that_is_never_finished_is_given_up(tmp_path: Path) -> None:
    save_account(tmp_path / "accounts", make_account("alice", b"pencil", with_scram=True))
    limits = LimitsConfig(connect_timeout_s=1)
    async with running(tmp_path, accounts=str(tmp_path / "accounts"), limits=limits) as broker:
        silent = Client("client", authentication=ClientAuthentication("SCRAM-SHA-256", lambda data: FIRST.get(data)))
        await silent.open(tcp_port(broker))
        assert await silent.event() is None or not silent.protocol.connected


FIRST: dict[bytes | None, bytes] = {None: b"n,,n=alice,r=abc"}


async def test_a_client_identifier_is_not_stolen(tmp_path: Path) -> None:
    """Neither its session nor what waits in it, and its will is not brought about."""
    async with running(tmp_path, accounts=accounts(tmp_path, "boss", "spy")) as broker:
        watcher = await subscribed(broker, "watcher", "will", **as_user("boss"))
        victim = await subscribed(broker, "victim", "a", will=Will("will", b"gone"), **as_user("boss"))
        for clean_start in (False, True):
            assert await refused(broker, "victim", clean_start=clean_start, **as_user("spy")) == 0x85
        await watcher.publish("a", b"for the victim alone")
        assert (await victim.receive()).payload == b"for the victim alone"
        await watcher.expect_no_message()


# Reading what the rules forbid


@pytest.mark.parametrize(
    "topic_filter", ["#", "+/#", "+/+", "+/front", "locks/#", "locks/+", "locks/front", "/#", "$SYS/#", "locks/front/#"]
)
async def test_no_filter_brings_what_is_forbidden(tmp_path: Path, topic_filter: str) -> None:
    """Live at each QoS, retained, or waiting in a session."""
    async with running(tmp_path, **guarded(tmp_path)) as broker:
        boss = await connected(broker, "boss", **as_user("boss"))
        await boss.publish("locks/front", b"retained", retain=True)
        spy = await subscribed(broker, "spy", topic_filter, "end", options=2, **as_user("spy"))
        boss.send("locks/front", b"secret", qos=0)
        await boss.publish("locks/front", b"secret")
        await boss.publish_once("locks/front", b"secret")
        spy.cut()
        await boss.publish("locks/front", b"secret")
        spy = await connected(broker, "spy", **as_user("spy"))
        await boss.publish("end")
        topics = set()
        while (packet := await spy.receive()).topic != "end":
            topics.add(packet.topic)
        assert not {topic for topic in topics if topic.startswith("locks")}


async def test_a_shared_subscription_takes_nothing_forbidden_away(tmp_path: Path) -> None:
    """Not even from its other members that may have it."""
    async with running(tmp_path, **guarded(tmp_path)) as broker:
        boss = await connected(broker, "boss", **as_user("boss"))
        assert await boss.subscribe("$share/g/#", "$share/h/locks/front") == [1, 1]
        spy = await connected(broker, "spy", **as_user("spy"))
        asked = ["$share/g/#", "$share/h/locks/front", "$share/h/locks/+", "$share/h/+/front", "$share/g/+/#"]
        assert await spy.subscribe(*asked) == [0x87] * len(asked)
        for _ in range(4):
            boss.send("locks/front", b"", qos=0)
            assert [(await boss.expect(Publish)).topic for _ in range(2)] == ["locks/front"] * 2


# Writing what the rules forbid


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
async def test_nothing_is_written_where_the_rules_forbid_it(tmp_path: Path, qos: int, retain: bool) -> None:
    async with running(tmp_path, **guarded(tmp_path)) as broker:
        boss = await subscribed(broker, "boss", "locks/#", "$SYS/mine", **as_user("boss"))
        spy = await connected(broker, "spy", **as_user("spy"))
        for topic in ("locks/front", "locks", "$SYS/mine"):
            spy.send(topic, b"open", qos=qos, retain=retain)
            if qos:
                answer: Any = await spy.event()
                assert answer.reason_code == 0x87
        await boss.expect_no_message()
        assert not broker.log.space.retained.topics


async def test_an_alias_is_no_way_round_the_rules(tmp_path: Path) -> None:
    async with running(tmp_path, **guarded(tmp_path)) as broker:
        boss = await subscribed(broker, "boss", "locks/#", **as_user("boss"))
        spy = await connected(broker, "spy", **as_user("spy"))
        for _ in range(2):  # with a name and an alias, then with the alias alone
            spy.send("locks/front", b"open", qos=1)
            assert (await spy.expect(Puback)).reason_code == 0x87
        await boss.expect_no_message()


async def test_a_will_is_no_way_round_the_rules_of_now_or_then(tmp_path: Path) -> None:
    async with running(tmp_path, **guarded(tmp_path)) as broker:
        boss = await subscribed(broker, "boss", "locks/#", "lamps/#", **as_user("boss"))
        assert await refused(broker, "spy", will=Will("locks/front", b"open"), **as_user("spy")) == 0x87
        asks = Will("lamps/1", b"", properties={RESPONSE_TOPIC: "locks/front"})
        assert await refused(broker, "spy", will=asks, **as_user("spy")) == 0x87
        spy = await connected(broker, "spy", will=Will("lamps/1", b"on"), **as_user("spy"))
        rules(tmp_path, BOSS + "deny * publish lamps/#\n" + RULES)
        broker.reload()
        spy.cut()
        await until(lambda: broker.counters.messages_dropped["rejected"] == 1, "its will is refused")
        await boss.expect_no_message()


async def test_no_client_is_made_to_write_for_another(tmp_path: Path) -> None:
    """By a response topic on which the asker may neither publish nor receive."""
    async with running(tmp_path, **guarded(tmp_path)) as broker:
        boss = await subscribed(broker, "boss", "requests", **as_user("boss"))
        spy = await connected(broker, "spy", **as_user("spy"))
        spy.send("requests", b"open", qos=1, properties={RESPONSE_TOPIC: "locks/front"})
        assert (await spy.expect(Puback)).reason_code == 0x87
        await spy.publish("requests", b"what time is it", properties={RESPONSE_TOPIC: "answers/spy"})
        assert (await boss.receive()).properties[RESPONSE_TOPIC] == "answers/spy"


# Keeping others out


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
    acl = rules(tmp_path, "allow * publish,subscribe #\n" + "allow * subscribe $SYS/#\n" * may)
    async with running(tmp_path, acl=acl) as broker:
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


# Tricks with letters

NOT_UTF_8 = {
    "overlong slash": b"locks\xc0\xaffront",
    "overlong U+0000": b"a\xc0\x80",
    "surrogate": b"a\xed\xa0\x80",
    "surrogate pair": b"\xed\xa0\xbd\xed\xb2\xa7",
    "beyond U+10FFFF": b"\xf4\x90\x80\x80",
    "cut off": b"a\xe2\x82",
    "U+0000": b"a\x00b",
}


@pytest.mark.parametrize("trick", NOT_UTF_8)
async def test_what_is_no_text_is_no_name(tmp_path: Path, trick: str) -> None:
    """As topic name, topic filter, client identifier or user name [MQTT-1.5.4-1, MQTT-1.5.4-2]."""
    bad = NOT_UTF_8[trick]
    text = len(bad).to_bytes(2, "big") + bad
    publish = bytes((0x30, len(text) + 1)) + text + b"\0"
    subscribe = bytes((0x82, len(text) + 4)) + b"\0\1\0" + text + b"\1"
    connect = encode(Connect("x", username="x"))
    connect = connect.replace(b"\0\1x", text)
    connect = bytes((0x10, len(connect) - 2)) + connect[2:]
    async with running(tmp_path) as broker:
        for packet in (publish, subscribe):
            client = await connected(broker, "client")
            client.write(packet)
            assert (await client.expect(Disconnect)).reason_code == 0x81
        with socket.create_connection(("127.0.0.1", tcp_port(broker))) as stranger:
            stranger.sendall(connect)
            await connected(broker, "bystander")
            stranger.settimeout(LONG_S)
            assert stranger.recv(4)[3:] == b"\x81"


LOOK_ALIKES = ["locks\u200b/front", "locks\uff0ffront", "loc\u212as/front", "\ufefflocks/front", "lo\u0441ks/front"]


async def test_a_name_that_looks_the_same_is_another_name(tmp_path: Path) -> None:
    """A subscriber to the lock does not get it, and nothing makes one name of two [MQTT-1.5.4-3]."""
    async with running(tmp_path, **guarded(tmp_path)) as broker:
        boss = await subscribed(broker, "boss", "locks/front", **as_user("boss"))
        listener = await subscribed(broker, "listener", "#", **as_user("spy"))
        spy = await connected(broker, "spy", **as_user("spy"))
        for name in [*LOOK_ALIKES, "Locks/front"]:
            await spy.publish(name, b"open")
            assert (await listener.receive()).topic == name
        await boss.expect_no_message()


@pytest.mark.parametrize("user", ["+", "boss/..", "$SYS", "%u"])
async def test_a_user_name_that_is_a_wildcard_gets_no_more_for_it(tmp_path: Path, user: str) -> None:
    own = rules(tmp_path, "allow * publish,subscribe home/%u/#\n")
    async with running(tmp_path, acl=own, accounts=accounts(tmp_path, "boss", user)) as broker:
        boss = await connected(broker, "boss", **as_user("boss"))
        await boss.publish("home/boss/door", b"", retain=True)
        spy = await subscribed(broker, "spy", "home/boss/#", "home/+/door", "home/#", "#", **as_user(user))
        await boss.publish("home/boss/door", b"open")
        await spy.ping()
