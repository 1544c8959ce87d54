"""Attempts to get in, and to get at what belongs to others: the threat model, tried.

What is tried elsewhere, close to what defends it: guessing, floods of logins and their memory in `test_logins`; SCRAM
in `test_scram`; every rule of access in `test_access`; TLS versions, ciphers and certificates in `listeners/test_tls`;
slow and half-open connections, ten thousand of them, in `listeners/test_connection_limits`; web pages in
`listeners/test_websocket`; forged lines in `test_logs`; listeners that are open to strangers in `test_config`; what
takes more memory or time than it should in `test_bombs`, and more turns in `test_turns`.
"""

import socket
from pathlib import Path
from typing import Any

import pytest
from argon2.low_level import verify_secret

from gateway.auth.accounts import make_account, save_account
from gateway.broker import Broker
from gateway.config.schema import LimitsConfig
from tests.gateway.support import LONG_S, Client, connected, running, subscribed, tcp_port, until
from wire.codec.packets import (
    MQTT_3_1_1,
    MQTT_5,
    Connack,
    Connect,
    Disconnect,
    Puback,
    Publish,
    Will,
    encode,
)
from wire.connection.authentication import ClientAuthentication
from wire.properties import RESPONSE_TOPIC

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
