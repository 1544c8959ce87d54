"""Sessions: resumed, taken over, expired, and kept across restarts."""

import asyncio
import contextlib
import shutil
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from gateway.broker import Broker
from gateway.config.schema import LimitsConfig
from gateway.sessions import registry
from gateway.store import MessageLog, maintenance, reader
from gateway.store.sqlite import rows
from gateway.store.sqlite.quarantine import notes_in
from gateway.subscriptions import Subscription
from tests.gateway.connection.test_custody import commits_held_up
from tests.gateway.steps import publish_numbers, session_of, started
from tests.gateway.store.support import disk_full, stored
from tests.gateway.support import LONG_S, Client, configure, connected, running, subscribed, tcp_port, until
from wire.codec.packets import MQTT_3_1_1, MQTT_5, Connack, Disconnect, Publish
from wire.errors import Closed
from wire.properties import ASSIGNED_CLIENT_IDENTIFIER, SESSION_EXPIRY_INTERVAL


async def test_a_resumed_session_receives_what_it_missed(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await connected(broker, "subscriber")
        assert not subscriber.connack.session_present
        await subscriber.subscribe("a")
        await subscriber.disconnect()
        publisher = await connected(broker, "publisher")
        await publish_numbers(publisher, 5)
        subscriber = await connected(broker, "subscriber")
        assert subscriber.connack.session_present
        assert [(await subscriber.receive()).payload for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]


async def test_what_was_not_acknowledged_comes_again_with_dup_and_its_identifier(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await subscribed(broker, "subscriber", "a")
        publisher = await connected(broker, "publisher")
        await publish_numbers(publisher, 3)
        first, second, third = [await subscriber.event() for _ in range(3)]
        subscriber.acknowledge(second)  # type: ignore[arg-type]
        subscriber.send("b", b"")  # its PUBACK shows that ours was handled
        await subscriber.event()
        subscriber.cut()
        subscriber = await connected(broker, "subscriber")
        again = [await subscriber.receive() for _ in range(2)]
        assert [(p.payload, p.packet_identifier, p.dup) for p in again] == [
            (packet.payload, packet.packet_identifier, True)  # type: ignore[union-attr]
            for packet in (first, third)
        ]


async def test_clean_start_discards_the_session(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await subscribed(broker, "subscriber", "a")
        await subscriber.disconnect()
        publisher = await connected(broker, "publisher")
        await publisher.publish("a", b"missed")
        subscriber = await connected(broker, "subscriber", clean_start=True)
        assert not subscriber.connack.session_present
        await publisher.publish("a", b"not subscribed any more")
        await subscriber.expect_no_message()
        await subscriber.disconnect()
        subscriber = await connected(broker, "subscriber")
        assert subscriber.connack.session_present


async def test_a_session_without_expiry_ends_with_its_connection(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await subscribed(broker, "client", "a", session_expiry_s=0)
        client.cut()
        await until(lambda: broker.sessions.get("client") is None, "the session ended")
        client = await connected(broker, "client", session_expiry_s=0)
        assert not client.connack.session_present


async def test_a_second_connection_takes_the_session_over(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        first = await subscribed(broker, "client", "a")
        second = await connected(broker, "client")
        assert second.connack.session_present
        assert (await first.expect(Disconnect)).reason_code == 0x8E
        assert isinstance(await first.event(), Closed)
        publisher = await connected(broker, "publisher")
        await publisher.publish("a", b"for the second")
        assert (await second.receive()).payload == b"for the second"


async def test_a_subscribe_that_waited_until_its_session_had_ended_leaves_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        port = tcp_port(broker)
        first = await Client(session_expiry_s=0).connect(port)
        with commits_held_up(tmp_path):
            first.protocol.publish("a", b"before")  # the SUBSCRIBE waits for it
            first.protocol.subscribe([("$share/group/a", 1), ("a", 1)])
            first.flush()
            await until(lambda: broker.counters.packets_received >= 3, "the SUBSCRIBE came")
            second = Client(session_expiry_s=0, clean_start=True)
            await second.open(port)
            assert isinstance(await first.event(), Disconnect)
        await second.expect(Connack)
        await second.publish("a", b"for no session")
        await second.expect_no_message()
        assert not list(broker.services.subscribers.cursors_for("a"))
        await until(lambda: not broker.log.audience.takers("a"), "its subscriptions have left")


async def test_many_connections_of_one_client_leave_one(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        clients = [Client("client") for _ in range(20)]
        for client in clients:
            await client.open(tcp_port(broker))
        alive = []
        for client in clients:
            events = [await client.event()]
            while events[-1] is not None and not isinstance(events[-1], Disconnect | Closed):
                try:
                    async with asyncio.timeout(0.2):
                        events.append(await client.event())
                except TimeoutError:
                    alive.append(client)
                    break
        assert len(alive) == 1
        await alive[0].publish("a", b"still served")


async def test_a_session_expires(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await subscribed(broker, "client", "a", session_expiry_s=1)
        await client.disconnect()
        assert broker.sessions.get("client") is not None
        await until(lambda: broker.sessions.get("client") is None, "the session expired")
        client = await Client("client").connect(tcp_port(broker))
        assert not client.connack.session_present


@pytest.mark.parametrize("level", [MQTT_3_1_1, MQTT_5])
async def test_a_client_that_never_returns_keeps_no_session_for_ever(tmp_path: Path, level: int) -> None:
    async with running(tmp_path, limits=LimitsConfig(session_expiry_max_s=1)) as broker:
        phone = await Client("phone", protocol_level=level, session_expiry_s=0xFFFFFFFF).connect(tcp_port(broker))
        assert phone.connack.properties.get(SESSION_EXPIRY_INTERVAL) == (1 if level == MQTT_5 else None)
        await phone.subscribe("a")
        await phone.disconnect()
        publisher = await Client("publisher", session_expiry_s=0).connect(tcp_port(broker))
        await publisher.publish("a", b"for the phone")
        await until(lambda: broker.sessions.get("phone") is None, "its session ended")
    ranges = stored(tmp_path, "SELECT reason, consumer, messages FROM dropped")
    assert ranges == [("ended", "session/phone", 1)]


async def test_clients_have_time_to_return_to_a_gateway_that_was_off_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = LimitsConfig(session_expiry_max_s=10_000)
    async with running(tmp_path, limits=limits) as broker:
        for client_id, expiry_s in (("asked", 5000), ("endless", 0xFFFFFFFF)):
            client = await Client(client_id, session_expiry_s=expiry_s).connect(tcp_port(broker))
            await client.disconnect()
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 20_000)
    async with running(tmp_path, limits=limits) as broker:
        await until(lambda: broker.sessions.get("asked") is None, "it was away for as long as its client had asked for")
        assert broker.sessions.get("endless") is not None


async def test_a_client_that_is_back_is_known_to_be_so_after_a_kill_and_waits_for_no_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, killed = tmp_path / "store", tmp_path / "killed"
    limits, clock, passed_s = LimitsConfig(session_expiry_max_s=10_000), time.time, 0
    monkeypatch.setattr(time, "time", lambda: clock() + passed_s)
    async with running(store, limits=limits) as broker:
        client = await Client(session_expiry_s=0xFFFFFFFF).connect(tcp_port(broker))
        await client.disconnect()
        publisher = await Client("publisher", session_expiry_s=0).connect(tcp_port(broker))
        await publisher.publish("a")  # with it, that the client went is durable
        passed_s = 9_000
        with disk_full():
            client = await Client(session_expiry_s=0xFFFFFFFF).connect(tcp_port(broker))
            assert client.connack.session_present
        await publisher.publish("a")
        shutil.copytree(store, killed)
    passed_s = 18_000
    monkeypatch.setattr(registry, "RETURN_S", 0.0)
    async with running(killed, limits=limits) as broker:
        client = await Client(session_expiry_s=0xFFFFFFFF).connect(tcp_port(broker))
        assert client.connack.session_present


async def test_a_session_that_is_resumed_in_time_does_not_expire(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await Client("client", session_expiry_s=1).connect(tcp_port(broker))
        await client.disconnect()
        client = await Client("client", session_expiry_s=1).connect(tcp_port(broker))
        assert client.connack.session_present
        await asyncio.sleep(1.2)
        await client.publish("a", b"still there")


async def test_sessions_outlive_a_restart_with_their_subscriptions(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await subscribed(broker, "subscriber", "a/+", "b")
        await subscriber.unsubscribe("b")
        publisher = await Client("publisher").connect(tcp_port(broker))
        await subscriber.disconnect()
        await publisher.publish("a/b", b"before")
    async with running(tmp_path) as broker:
        publisher = await Client("publisher").connect(tcp_port(broker))
        await publisher.publish("b", b"unsubscribed")
        await publisher.publish("a/c", b"after")
        subscriber = await Client("subscriber").connect(tcp_port(broker))
        assert subscriber.connack.session_present
        assert [(await subscriber.receive()).payload for _ in range(2)] == [b"before", b"after"]


async def test_a_session_goes_on_expiring_while_the_gateway_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as broker:
        for client_id, expiry_s in (("short", 100), ("long", 10_000), ("endless", 0xFFFFFFFF)):
            client = await Client(client_id, session_expiry_s=expiry_s).connect(tcp_port(broker))
            await client.disconnect()
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 1000)
    async with running(tmp_path) as broker:
        await until(lambda: broker.sessions.get("short") is None, "the short one expired")
        assert broker.sessions.get("long") is not None
        assert broker.sessions.get("endless") is not None
    assert stored(tmp_path, "SELECT consumer FROM cursor") == [("session/endless",), ("session/long",)]


async def test_a_clock_that_is_set_after_a_session_went_to_rest_makes_it_no_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as boot:
        boot.setattr(time, "time", lambda: 1000.0)  # a board that has just started, in 1970
        async with running(tmp_path) as broker:
            client = await subscribed(broker, "client", "a", session_expiry_s=1000)
            await client.disconnect()
    async with running(tmp_path) as broker:
        publisher = await Client("publisher").connect(tcp_port(broker))
        await publisher.publish("a", b"kept")
        client = await Client(session_expiry_s=1000).connect(tcp_port(broker))
        assert client.connack.session_present
        assert (await client.receive()).payload == b"kept"


async def test_what_waited_for_a_subscription_that_is_no_more_is_dropped_when_the_client_leaves(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await subscribed(broker, "client", "much/#", "little")
        await client.disconnect()
        publisher = await Client("publisher").connect(tcp_port(broker))
        await publish_numbers(publisher, 50, "much/a")
        client = await Client("client", receive_maximum=1).connect(tcp_port(broker))
        message = await client.expect(Publish)
        await client.unsubscribe("much/#")
        client.acknowledge(message)
        await client.disconnect()
        await until(lambda: broker.log.space.needed_count == 0, "let go")


async def test_a_session_is_durable_before_its_suback(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await subscribed(broker, "client", "a/#", options=0)
        (_, (value,)) = stored(tmp_path, "SELECT body FROM session")
        assert b"a/#" in value
        assert Subscription.__name__ not in str(value)  # plain MessagePack, no pickle


async def test_a_subscription_more_is_written_alone_and_one_that_is_the_same_is_not(tmp_path: Path) -> None:
    def entries() -> set[tuple[int, str, str, bytes]]:
        return set(stored(tmp_path, "SELECT rowid, client_id, topic_filter, body FROM session"))

    async with running(tmp_path) as broker:
        client = await subscribed(broker, "client", *[f"site/{number}/#" for number in range(500)])
        before = entries()
        await client.subscribe("site/7/#")
        assert entries() == before
        await client.subscribe("one/more", "$share/group/one/more")
        more = entries() - before
        assert {entry[1:3] for entry in more} == {("client", "one/more"), ("client", "$share/group/one/more")}
        await client.unsubscribe("one/more", "$share/group/one/more", "never/there")
        assert entries() == before


async def test_a_new_session_of_the_same_name_has_nothing_of_the_one_before(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await subscribed(broker, "client", "a", "b", "$share/group/c")
        client = await subscribed(broker, "client", "b", clean_start=True)
        await client.disconnect()
    async with running(tmp_path) as broker:
        session = session_of(broker, "client")
        assert (list(session.cursor.filters), session.shared) == (["b"], {})


async def test_a_session_whose_rows_are_corrupt_is_set_aside_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as broker:
        for name in ("gone", "whole"):
            await (await Client(name).connect(tcp_port(broker))).subscribe("a", "b")
    with contextlib.closing(sqlite3.connect(tmp_path / "messages.sqlite")) as file:
        for key in (("gone", ""), ("whole", "b")):
            file.execute("UPDATE session SET crc = crc + 1 WHERE (client_id, topic_filter) = (?, ?)", key)
        file.commit()
    for _ in range(2):
        async with running(tmp_path) as broker:
            (session,) = broker.sessions.all()
            assert (session.client_id, list(session.cursor.filters)) == ("whole", ["a"])
    places = sorted(note.what for note in notes_in(tmp_path))
    assert places == ["the session of client 'gone'", "the subscription 'b' of client 'whole'"]
    assert caplog.text.count("was set aside") == len(places)


async def test_a_session_that_was_resumed_without_expiry_is_gone_after_a_kill(tmp_path: Path) -> None:
    gateway = await started(tmp_path)
    await (await Client().connect(gateway.port)).subscribe("a")
    client = await Client(session_expiry_s=0).connect(gateway.port)
    assert client.connack.session_present
    await gateway.kill()
    async with running(tmp_path) as broker:
        assert broker.sessions.all() == []
    assert stored(tmp_path, "SELECT * FROM session") == []


async def test_the_place_of_a_new_subscriber_is_durable_before_a_message_for_it_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "MAINTENANCE_INTERVAL_S", 1000.0)
    async with running(tmp_path) as broker:
        await subscribed(broker, "subscriber", "a", "$share/group/a")
        publisher = await Client("publisher", session_expiry_s=0).connect(tcp_port(broker))
        await publisher.publish("a")
        places = stored(tmp_path, "SELECT consumer, position FROM cursor ORDER BY consumer")
        assert places == [("session/subscriber", 0), ("share/group/a", 0)]


async def test_a_gateway_closes_while_sessions_look_through_a_backlog_for_what_is_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as broker:
        for name, topic in (("wants", "a"), ("does not", "b")):
            client = await connected(broker, name)
            await client.subscribe(topic)
            await client.disconnect()
        publisher = await connected(broker, "publisher", session_expiry_s=0)
        for _ in range(5):
            await publisher.publish("a")
    with contextlib.closing(sqlite3.connect(tmp_path / "messages.sqlite")) as file:
        rows.add_to_sql(file)
        file.execute("UPDATE cursor SET position = 0, crc = crc_of_all(consumer, 0, count)")  # as a kill leaves it
        file.commit()
    config = configure(tmp_path)
    log = await MessageLog.open(tmp_path, origin=config.name)
    broker = Broker(config, log)
    medium, read = threading.Event(), reader.read_rows
    # It has not answered yet.
    monkeypatch.setattr(reader, "read_rows", lambda *read_of: medium.wait() and read(*read_of))
    await broker.start()
    async with asyncio.timeout(LONG_S):
        await broker.close()
    medium.set()
    await log.close()


async def test_an_empty_client_identifier_gets_one_assigned(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        names = set()
        for _ in range(2):
            client = await Client("", clean_start=True).connect(tcp_port(broker))
            names.add(client.connack.properties[ASSIGNED_CLIENT_IDENTIFIER])
        assert len(names) == 2
        assert all(broker.sessions.get(name) for name in names)


async def test_a_disconnect_may_shorten_the_expiry(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await Client("client").connect(tcp_port(broker))
        client.write(bytes.fromhex("e00700051100000000"))  # DISCONNECT, normal, session expiry interval 0
        await until(lambda: broker.sessions.get("client") is None, "the session ended")
