"""Subscription options, identifiers, expiry and access, as subscribers see them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.auth.accounts import make_account, save_account
from gateway.config.schema import LimitsConfig, TcpConfig
from tests.gateway.auth.scram_client import final as scram_final
from tests.gateway.steps import publish_numbers, session_of, started, with_publisher
from tests.gateway.store.support import stored
from tests.gateway.support import Client, all_connected, connected, running, subscribed, tcp_port, until
from wire import properties as p
from wire.codec.packets import MQTT_3_1_1, NO_LOCAL, Connack, Disconnect, Puback, Publish, Pubrec, Pubrel, Suback, Will
from wire.connection.authentication import ClientAuthentication


async def subscribe_as(client: Client, identifier: int, topic_filter: str, options: int = 1) -> None:
    client.protocol.subscribe([(topic_filter, options)], {p.SUBSCRIPTION_IDENTIFIER: [identifier]})
    client.flush()
    await client.expect(Suback)


async def test_overlapping_subscriptions_bring_a_copy_for_each_identifier(tmp_path: Path) -> None:
    """[MQTT-3.3.4-2, MQTT-3.3.4-5]: Node-RED cannot read a message with several identifiers."""
    async with running(tmp_path) as broker:
        subscriber = await connected(broker, "subscriber")
        wanted = ((1, "a/#", 0), (2, "a/b", 2), (268_435_455, "+/b", 1), (9, "end", 2))
        for identifier, topic_filter, options in wanted:
            await subscribe_as(subscriber, identifier, topic_filter, options)
        await subscribe_as(subscriber, 2, "+/b/#", 1)  # an identifier that comes again brings no further copy
        publisher = await connected(broker, "publisher")
        for qos in (0, 1, 2):
            publisher.send("a/b", b"", qos=qos)
            packets = [await subscriber.receive() for _ in range(3)]
            found = sorted((*packet.properties[p.SUBSCRIPTION_IDENTIFIER], packet.qos) for packet in packets)
            assert found == [(1, 0), (2, qos), (268_435_455, min(qos, 1))]
            publisher.send("end", b"", qos=qos)
            assert (await subscriber.receive()).topic == "end"


@pytest.mark.parametrize("qos", [1, 2])
async def test_copies_that_were_not_acknowledged_come_again(tmp_path: Path, qos: int) -> None:
    gateway = await started(tmp_path)
    subscriber = await Client("subscriber").connect(gateway.port)
    for identifier, topic_filter in ((1, "a/#"), (2, "a/b"), (3, "+/b")):
        await subscribe_as(subscriber, identifier, topic_filter, qos)
    publisher = await Client("publisher").connect(gateway.port)
    publisher.send("a/b", b"", qos=qos)
    for _ in range(3):
        await subscriber.expect(Publish)  # and no acknowledgement
    await gateway.restart()
    subscriber = await Client("subscriber").connect(gateway.port)
    packets = [await subscriber.expect(Publish) for _ in range(3)]
    assert sorted(packet.properties[p.SUBSCRIPTION_IDENTIFIER] for packet in packets) == [[1], [2], [3]]
    for packet in packets:
        subscriber.acknowledge(packet)
    if qos == 2:
        for packet in packets:
            assert (await subscriber.expect(Pubrel)).packet_identifier == packet.packet_identifier
            subscriber.complete(packet)
    publisher = await Client("another").connect(gateway.port)
    await publisher.publish_once("a/c")
    assert (await subscriber.receive()).topic == "a/c"


async def test_identifiers_outlive_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await connected(broker, "subscriber")
        await subscribe_as(subscriber, 7, "a")
        await subscribe_as(subscriber, 8, "$share/group/a")
    async with running(tmp_path) as broker:
        subscriber, publisher = await all_connected(broker, "subscriber", "publisher")
        await publisher.publish("a", b"")
        packets = [await subscriber.receive() for _ in range(2)]
        assert sorted(packet.properties[p.SUBSCRIPTION_IDENTIFIER] for packet in packets) == [[7], [8]]


async def test_what_waited_too_long_is_not_sent_and_leaves_a_range(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await subscribed(broker, "subscriber", "a", "$share/group/b", options=2)
        await subscriber.disconnect()
        publisher = await connected(broker, "publisher")
        for topic in ("a", "b"):
            for qos in (1, 2):
                for expiry_s in (1, 1000):
                    payload, properties = b"%d" % expiry_s, {p.MESSAGE_EXPIRY_INTERVAL: expiry_s}
                    if qos == 1:
                        await publisher.publish(topic, payload, properties=properties)
                    else:
                        await publisher.publish_once(topic, payload, properties=properties)
        await asyncio.sleep(1.1)
        subscriber = await connected(broker, "subscriber", receive_maximum=1)
        packets = [await subscriber.receive() for _ in range(4)]
        assert [packet.payload for packet in packets] == [b"1000"] * 4
        assert all(980 < packet.properties[p.MESSAGE_EXPIRY_INTERVAL] < 1000 for packet in packets)
        await subscriber.expect_no_message()
    dropped = stored(tmp_path, "SELECT reason, consumer, first, last, messages FROM dropped ORDER BY first")
    assert dropped == [("expired", "session/subscriber", number, number, 1) for number in (1, 3, 5, 7)]


async def test_what_is_too_large_for_a_client_leaves_a_range(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        small = await subscribed(broker, "small", "a", options=2, maximum_packet_size=500)
        for _ in range(3):
            await publisher.publish("a", b"x" * 1000)
        await publisher.publish_once("a", b"x" * 1000)
        await publisher.publish("a", b"fits")
        assert (await small.receive()).payload == b"fits"
    dropped = stored(tmp_path, "SELECT reason, consumer, publisher, first, last, messages FROM dropped")
    assert dropped == [("oversize", "session/small", "publisher", 1, 4, 4)]


async def test_topic_aliases_both_ways(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        subscriber = await subscribed(broker, "subscriber", "a/#", options=0, topic_alias_maximum=10)
        publisher.write(bytes.fromhex("300a0003612f620323000141300700000323000142"))  # a/b with alias 1; alias 1
        assert [(packet.topic, packet.payload) for packet in [await subscriber.receive() for _ in range(2)]] == [
            ("a/b", b"A"),
            ("a/b", b"B"),
        ]
        assert p.TOPIC_ALIAS not in (await publisher.publish("b")).properties


async def test_payload_that_says_it_is_text_and_is_not_is_refused(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (_, publisher):
        identifier = publisher.send("a", b"\xff", properties={p.PAYLOAD_FORMAT_INDICATOR: 1})
        puback = await publisher.expect(Puback)
        assert (puback.packet_identifier, puback.reason_code) == (identifier, 0x99)
        await publisher.publish("a", b"\xff", properties={p.PAYLOAD_FORMAT_INDICATOR: 0})
    assert stored(tmp_path, "SELECT reason, consumer, publisher, messages FROM dropped") == [
        ("rejected", "gateway", "publisher", 1)
    ]


async def test_user_properties_keep_their_order(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        subscriber = await subscribed(broker, "subscriber", "a", options=2)
        pairs = [("b", "1"), ("a", "2"), ("b", "1"), ("", "")]
        await publisher.publish_once("a", b"", properties={p.USER_PROPERTY: list(pairs)})
        assert (await subscriber.receive()).properties[p.USER_PROPERTY][:4] == pairs


def rules_file(folder: Path, rules: str) -> str:
    path = folder / "acl"
    path.write_text(rules)
    return str(path)


RULES = """
deny  * publish,subscribe locks/#
allow * publish,subscribe #
"""


async def test_access_rules_decide_on_publishing_subscribing_and_receiving(tmp_path: Path) -> None:
    async with running(tmp_path, acl=rules_file(tmp_path, RULES)) as broker:
        client = await connected(broker, "client")
        assert await client.subscribe("locks/1", "$share/group/#", "b/#", options=2) == [0x87, 0x87, 2]
        for qos in (1, 2):
            client.send("locks/1", b"open", qos=qos)
            event: Any = await client.event()
            assert event.reason_code == 0x87
        client.send("locks/1", b"open", qos=0)
        client.send("a", b"", qos=1, properties={p.RESPONSE_TOPIC: "locks/1"})
        assert (await client.expect(Puback)).reason_code == 0x87
        await client.publish("other")
        client.send("$SYS/broker/version", b"mine", retain=True)
        assert (await client.expect(Puback)).reason_code == 0x87
        thief = Client("thief", will=Will("locks/1", b"open"))
        await thief.open(tcp_port(broker))
        assert (await thief.expect(Connack)).reason_code == 0x87
    assert sum(count for (count,) in stored(tmp_path, "SELECT messages FROM dropped")) == 5


async def test_rules_that_change_count_for_what_waits(tmp_path: Path) -> None:
    async with running(tmp_path, acl=rules_file(tmp_path, "allow * publish,subscribe #\n")) as broker:
        subscriber = await subscribed(broker, "subscriber", "#", options=1)
        await subscriber.subscribe("$share/group/#", options=1)
        publisher = await connected(broker, "publisher")
        await publisher.publish("locks/1", b"", retain=True)
        packets = [await subscriber.expect(Publish) for _ in range(2)]
        subscriber.cut()
        await publisher.publish("locks/2", b"")
        rules_file(tmp_path, RULES)
        broker.reload()
        await publisher.publish("a", b"")
        subscriber = await connected(broker, "subscriber")
        assert [packet.topic for packet in packets] == ["locks/1", "locks/1"]
        assert [(await subscriber.receive()).topic for _ in range(2)] == ["a", "a"]
        await subscriber.subscribe("+/1")
        await publisher.publish("b", b"")
        assert (await subscriber.receive()).topic == "b"
    ranges = stored(tmp_path, "SELECT reason, consumer, first, last, messages FROM dropped ORDER BY consumer")
    assert ranges == [("filtered", "session/subscriber", 1, 2, 2), ("filtered", "share/group/#", 1, 2, 2)]


async def test_what_waited_when_a_rule_was_tightened_leaves_a_range_and_nothing_else_does(tmp_path: Path) -> None:
    allow, deny = "allow * publish,subscribe #\n", "deny * subscribe {}/#\n"
    async with running(tmp_path, acl=rules_file(tmp_path, deny.format("never") + allow)) as broker:
        for name in ("back", "gone"):
            subscriber = await subscribed(broker, name, "#")
            await subscriber.disconnect()
        publisher = await connected(broker, "publisher", session_expiry_s=0)
        for topic in ("a", "never/1", "locks/1", "doors/1", "a"):
            await publisher.publish(topic)
        for denied in ("locks", "doors"):
            rules_file(tmp_path, deny.format("never") + deny.format(denied) + allow)
            broker.reload()
            await publisher.publish(f"{denied}/2")
            await publisher.publish("a")
        subscriber = await connected(broker, "back")
        got = [(await subscriber.receive()).topic for _ in range(5)]
        assert got == ["a", "locks/1", "a", "a", "a"], "the locks are allowed again"
        await connected(broker, "gone", clean_start=True)
        await until(lambda: broker.log.space.needed_count == 0, "nothing waits")
    query = "SELECT reason, consumer, first, last, messages FROM dropped ORDER BY reason DESC"
    assert stored(tmp_path, query) == [("filtered", "session/back", 4, 4, 1), ("ended", "session/gone", 1, 9, 6)]


@pytest.mark.parametrize("times", [0, 2])
async def test_what_was_denied_on_its_way_at_qos_2_is_told_once(tmp_path: Path, times: int) -> None:
    """However many times the client comes back before it answers the PUBREL."""
    async with running(tmp_path, acl=rules_file(tmp_path, "allow * publish,subscribe #\n")) as broker:
        publisher = await connected(broker, "publisher")
        subscriber = await subscribed(broker, "subscriber", "#", options=2)
        await publisher.publish_once("locks/1", b"")
        await subscriber.expect(Publish)
        subscriber.cut()
        rules_file(tmp_path, RULES)
        broker.reload()
        for _ in range(times):
            subscriber = Client("subscriber")
            await subscriber.open(tcp_port(broker))
            await subscriber.read(20)  # the PUBREL is behind it
            await until(lambda: broker.counters.messages_dropped["filtered"], "it is noted")
            subscriber.cut()
        subscriber = await connected(broker, "subscriber")
        await publisher.publish_once("a", b"")
        assert (await subscriber.receive()).topic == "a"
        assert broker.counters.messages_dropped["filtered"] == 1
    assert stored(tmp_path, "SELECT reason, first, last, messages FROM dropped") == [("filtered", 1, 1, 1)]


async def test_what_a_client_has_published_before_it_subscribes_is_not_new_to_it(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await connected(broker, "client")
        client.protocol.publish("a", b"before")
        client.protocol.subscribe([("a", 1)])
        client.flush()
        await client.expect(Puback)
        await client.expect(Suback)
        await client.expect_no_message()


async def test_a_subscription_begins_when_it_is_made_and_loses_nothing_when_it_is_made_again(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        subscriber = await subscribed(broker, "subscriber", "a", receive_maximum=1)
        await publisher.publish("a", b"1")
        first = await subscriber.expect(Publish)  # all else waits for its acknowledgement
        await publisher.publish("b", b"too early")
        await publisher.publish("a", b"2")
        assert await subscriber.subscribe("a", "b") == [1, 1]
        await publisher.publish("b", b"3")
        subscriber.acknowledge(first)
        assert [(await subscriber.receive()).payload for _ in range(2)] == [b"2", b"3"]


async def test_no_local_counts_for_as_long_as_it_is_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client, other = await all_connected(broker, "client", "other")
        for options, own in ((NO_LOCAL | 1, []), (1, [Publish]), (NO_LOCAL | 1, []), (1, [Publish])):
            if options == 1:
                await client.unsubscribe("a")
            await client.subscribe("a", options=options)
            client.send("a", b"own")
            kinds = [type(await client.event()) for _ in [Puback, *own]]
            assert set(kinds) == {Puback, *own}
            await other.publish("a", b"other's")
            assert (await client.receive()).payload == b"other's"


async def test_a_group_gives_a_message_to_a_member_that_may_have_it_and_says_so_where_none_may(tmp_path: Path) -> None:
    async with running(tmp_path, acl=rules_file(tmp_path, "allow * publish,subscribe #\n")) as broker:
        one, two = [await connected(broker, name) for name in ("one", "two")]
        for member in (one, two):
            await member.subscribe("$share/group/#", options=0)
        rules_file(tmp_path, "deny * subscribe locks/#\ndeny * subscribe not/%c\nallow * publish,subscribe #\n")
        broker.reload()
        publisher = await connected(broker, "publisher")
        for topic in ("not/one", "not/one", "locks/1", "not/two"):
            publisher.send(topic, qos=0)
        assert [(await two.receive()).topic for _ in range(2)] == ["not/one"] * 2
        assert (await one.receive()).topic == "not/two"
    columns = "reason, consumer, publisher, messages"
    assert stored(tmp_path, f"SELECT {columns} FROM dropped") == [("filtered", "share/group/#", "publisher", 1)]


@pytest.mark.parametrize("qos", [1, 2])
async def test_what_the_rules_deny_to_a_member_goes_to_another_one(tmp_path: Path, qos: int) -> None:
    async with running(tmp_path, acl=rules_file(tmp_path, "allow * publish,subscribe #\n")) as broker:
        denied, allowed = [await connected(broker, name) for name in ("denied", "allowed")]
        for member in (denied, allowed):
            await member.subscribe("$share/group/#", options=qos)
        rules_file(tmp_path, "deny * subscribe not/%c\nallow * publish,subscribe #\n")
        broker.reload()
        publisher = await connected(broker, "publisher")
        await publish_numbers(publisher, 20, "not/denied")
        await publisher.publish("not/allowed", b"end")
        received = [(await allowed.receive()).payload for _ in range(20)]
        assert received == [b"%d" % number for number in range(20)]
        assert (await denied.receive()).payload == b"end"
    assert stored(tmp_path, "SELECT * FROM dropped") == []


async def test_what_a_member_may_not_have_waits_for_one_that_is_away_and_leaves_a_range_where_it_leaves(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, acl=rules_file(tmp_path, "allow * publish,subscribe #\n")) as broker:
        denied, away = [await connected(broker, name) for name in ("denied", "away")]
        for member in (denied, away):
            await member.subscribe("$share/group/#")
        await away.disconnect()
        rules_file(tmp_path, "deny * subscribe not/%c\nallow * publish,subscribe #\n")
        broker.reload()
        publisher = await connected(broker, "publisher")
        for payload in (b"1", b"2"):
            await publisher.publish("not/denied", payload)
        await publisher.publish("a", b"for all")
        assert (await denied.receive()).payload == b"for all"
        away = await connected(broker, "away", receive_maximum=1)
        first = await away.expect(Publish)
        assert first.payload == b"1"
        away.acknowledge(first)
        assert (await away.expect(Publish)).payload == b"2"
        await away.unsubscribe("$share/group/#")
        await away.disconnect()
        await publisher.publish("b", b"marker")
        assert (await denied.receive()).payload == b"marker"
    dropped = stored(tmp_path, "SELECT reason, consumer, publisher, messages FROM dropped")
    assert dropped == [("filtered", "share/group/#", "publisher", 1)]


async def test_what_waits_for_another_member_of_a_group_that_ends_leaves_a_range(tmp_path: Path) -> None:
    async with running(tmp_path, acl=rules_file(tmp_path, "allow * publish,subscribe #\n")) as broker:
        denied, away = [await connected(broker, name) for name in ("denied", "away")]
        for member in (denied, away):
            await member.subscribe("$share/group/#")
        await away.disconnect()
        rules_file(tmp_path, "deny * subscribe not/%c\nallow * publish,subscribe #\n")
        broker.reload()
        publisher = await connected(broker, "publisher")
        for topic in ("not/denied", "a", "not/denied", "b", "not/denied"):
            await publisher.publish(topic)
        assert [(await denied.receive()).topic for _ in range(2)] == ["a", "b"]
        await publisher.publish("marker")  # the acknowledgements before it are taken
        assert (await denied.receive()).topic == "marker"
        await denied.unsubscribe("$share/group/#")
        await connected(broker, "away", clean_start=True)
    dropped = stored(tmp_path, "SELECT reason, consumer, publisher, messages FROM dropped")
    assert dropped == [("ended", "share/group/#", "publisher", 3)]


async def test_a_session_that_another_user_takes_up_takes_nothing_from_its_group(tmp_path: Path) -> None:
    accounts = tmp_path / "accounts"
    save_account(accounts, make_account("bob", b"bob", with_scram=True))
    rules = rules_file(tmp_path, "deny bob subscribe locks/#\nallow * publish,subscribe #\n")
    async with running(tmp_path, acl=rules) as broker:
        for name in ("first", "second"):
            member = await subscribed(broker, name, "$share/group/#")
            await member.disconnect()
    async with running(tmp_path, TcpConfig(port=0, allow_anonymous=True), acl=rules, accounts=str(accounts)) as broker:
        publisher = await connected(broker, "publisher")
        await publish_numbers(publisher, 10, "locks/1")
        bob = await connected(broker, "first", username="bob", password=b"bob")
        assert bob.connack.session_present
        await publisher.publish("a", b"for all")
        assert (await bob.receive()).payload == b"for all"
        second = await connected(broker, "second")
        assert [(await second.receive()).payload for _ in range(10)] == [b"%d" % number for number in range(10)]
    assert stored(tmp_path, "SELECT * FROM dropped") == []


async def test_a_session_belongs_to_its_user(tmp_path: Path) -> None:
    accounts = tmp_path / "accounts"
    for name in ("alice", "bob"):
        save_account(accounts, make_account(name, name.encode(), with_scram=True))
    async with running(tmp_path, accounts=str(accounts)) as broker:
        await connected(broker, "client", username="alice", password=b"alice")
        for clean_start in (False, True):
            thief = Client("client", username="bob", password=b"bob", clean_start=clean_start)
            await thief.open(tcp_port(broker))
            assert (await thief.expect(Connack)).reason_code == 0x85
        stranger = Client("other", username="alice", password=b"wrong")
        await stranger.open(tcp_port(broker))
        assert (await stranger.expect(Connack)).reason_code == 0x86
        again = await connected(broker, "client", username="alice", password=b"alice")
        assert again.connack.session_present


async def test_the_longest_keep_alive_is_announced(tmp_path: Path) -> None:
    async with running(tmp_path, limits=LimitsConfig(keep_alive_s=30)) as broker:
        for asked_s, told_s in ((0, 30), (60, 30), (20, None)):
            client = await connected(broker, "", clean_start=True, keep_alive_s=asked_s)
            assert client.connack.properties.get(p.SERVER_KEEP_ALIVE) == told_s
            assert client.connack.properties[p.ASSIGNED_CLIENT_IDENTIFIER].startswith("hf-")


@pytest.mark.parametrize("level", [4, 5])
async def test_ill_formed_filters_are_refused_and_the_others_served(tmp_path: Path, level: int) -> None:
    async with running(tmp_path) as broker:
        options = {"session_expiry_s": 0} if level == MQTT_3_1_1 else {}
        client = await connected(broker, "client", protocol_level=level, **options)
        properties = b"\x00" if level == 5 else b""
        identifier = client.protocol.subscribe([(topic_filter, 1) for topic_filter in ("a/#", "#", "b")])
        client.protocol.data_to_send()  # is not sent: this one is made by hand
        body = identifier.to_bytes(2, "big") + properties + b"\x00\x03a/#\x01" + b"\x00\x03#/a\x01" + b"\x00\x01b\x02"
        client.write(bytes((0x82, len(body))) + body)
        await until(lambda: len(session_of(broker, "client").cursor.filters) == 2, "served")
        assert not isinstance(await client.event(), Disconnect)


async def test_a_login_by_scram_and_another_one_on_the_way(tmp_path: Path) -> None:
    accounts = tmp_path / "accounts"
    for name in ("alice", "bob"):
        save_account(accounts, make_account(name, name.encode(), with_scram=True))

    def login(password: bytes) -> ClientAuthentication:
        def respond(data: bytes | None) -> bytes | None:
            if data is None:
                return b"n,,n=alice,r=abc"
            return scram_final(data, password) if data.startswith(b"r=") else None

        return ClientAuthentication("SCRAM-SHA-256", respond)

    async with running(tmp_path, accounts=str(accounts)) as broker:
        client = await connected(broker, "client", authentication=login(b"alice"))
        assert session_of(broker, "client").user == "alice"
        client.protocol.reauthenticate()
        client.flush()
        await client.publish("a")
        wrong = Client("wrong", authentication=login(b"bob"))
        await wrong.open(tcp_port(broker))
        assert (await wrong.expect(Connack)).reason_code == 0x87


async def test_a_client_that_is_logged_in_cannot_log_in_again_as_another_user(tmp_path: Path) -> None:
    accounts = tmp_path / "accounts"
    for name in ("alice", "bob"):
        save_account(accounts, make_account(name, name.encode(), with_scram=True))
    users = ["alice"]

    def respond(data: bytes | None) -> bytes | None:
        bare = f"n={users[0]},r=abc"
        if data is None:
            return b"n,," + bare.encode()
        return scram_final(data, users[0].encode(), bare=bare) if data.startswith(b"r=") else None

    async with running(tmp_path, accounts=str(accounts)) as broker:
        client = await connected(broker, "client", authentication=ClientAuthentication("SCRAM-SHA-256", respond))
        users[0] = "bob"
        client.protocol.reauthenticate()
        client.flush()
        assert (await client.expect(Disconnect)).reason_code == 0x87


async def test_every_packet_is_counted(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await subscribed(broker, "client", "a", options=2)
        await client.publish("b")
        client.send("a", b"12345", qos=2)
        events = [await client.event() for _ in range(2)]
        counters = broker.counters
        assert {type(event) for event in events} == {Pubrec, Publish}
        assert (counters.connections_opened, counters.connections_accepted) == (1, 1)
        assert (counters.packets_received, counters.packets_sent) == (4, 5)  # the PUBLISH came back as well
        assert (counters.messages_received, counters.messages_sent) == ([0, 1, 1], [0, 0, 1])
        assert (counters.payload_bytes_received, counters.payload_bytes_sent) == (5, 5)
        assert counters.messages_stored == 2
        assert counters.bytes_received > 20 and counters.bytes_sent > 20
