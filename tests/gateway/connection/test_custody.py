"""Store, sync, then acknowledge: no PUBACK for what could be lost."""

import asyncio
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.store import log, maintenance
from tests.gateway.steps import publish_numbers, session_of, started
from tests.gateway.store.support import disk_full, messages_in, stored
from tests.gateway.support import (
    Client,
    GatewayProcess,
    joined,
    reasons_of,
    running,
    subscribed,
    tcp_port,
    until,
    user_property,
)
from wire.codec.packets import Connack, Disconnect, Puback, Publish
from wire.identity import RECEIVE
from wire.properties import REASON_STRING
from wire.reasons import NO_SUBSCRIPTION_EXISTED, SUCCESS


@contextmanager
def commits_held_up(folder: Path, file: str = "messages.sqlite") -> Iterator[sqlite3.Connection]:
    """Another connection holds SQLite's write lock, so the gateway's commit cannot end."""
    other = sqlite3.connect(folder / file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield other
    finally:
        other.close()


async def test_no_puback_leaves_while_the_commit_runs(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await Client().connect(tcp_port(broker))
        subscriber = await subscribed(broker, "subscriber", "a")
        with commits_held_up(tmp_path):
            sent = [client.send("a", b"%d" % number) for number in range(10)]
            await client.ping()
            await subscriber.ping()
        assert [(await client.expect(Puback)).packet_identifier for _ in sent] == sent
        assert (await subscriber.receive()).payload == b"0"


async def test_no_puback_leaves_when_the_disk_is_full_and_the_gateway_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as broker:
        client = await Client("unlucky").connect(tcp_port(broker))
        bystander = await subscribed(broker, "bystander", "q")
        await client.publish("a", b"before")
        with disk_full():
            for _ in range(3):
                client.send("a", b"x" * 100_000)
            event = await client.expect(Disconnect)
            assert event.reason_code == 0x83
            assert "the message store failed" in event.properties[REASON_STRING]
            bystander.send("q", b"still here", qos=0)
            assert (await bystander.receive()).payload == b"still here"
            # Refused where it could not be saved either that the session has lost its connection.
            assert (await Client("unlucky").connect(tcp_port(broker))).connack.reason_code in (SUCCESS, 0x83)
        again = await Client("unlucky").connect(tcp_port(broker))
        assert again.connack.session_present
        await again.publish("a", b"after")
    assert len([reason for reason in reasons_of(caplog) if "the message store failed" in reason]) == 1
    assert messages_in(tmp_path)[-1][1].seq == 2


async def test_a_disk_that_is_full_is_a_problem_also_where_only_qos_0_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "MAINTENANCE_INTERVAL_S", 0.01)
    async with running(tmp_path) as broker:
        client = await Client().connect(tcp_port(broker))
        with disk_full():
            client.send("a", b"x" * 100_000, qos=0, retain=True)
            await until(broker.overview.problems, "it is said")
            assert broker.overview.problems()[0].startswith("message store: ")
            with monkeypatch.context() as patch:
                patch.setattr(log, "room_bytes", lambda _: -1)  # where SQLite speaks of an I/O error alone
                broker.log.writer.look_at_disk()
            assert broker.overview.problems()[0].endswith("; its disk is full")
        await until(lambda: not broker.overview.problems(), "it works again")
    assert stored(tmp_path, "SELECT topic FROM retained") == [("a",)]


async def test_what_has_come_is_acknowledged_before_a_gateway_that_ends_says_good_bye(tmp_path: Path) -> None:
    gateway = await started(tmp_path)
    client = await Client().connect(gateway.port)
    with commits_held_up(tmp_path):
        sent = client.send("a", b"the last one")
        await client.ping()
        stopping = asyncio.create_task(gateway.stop())
        await gateway.ending()
        await client.ping()  # neither an acknowledgement nor a DISCONNECT came before its answer
    assert (await client.expect(Puback)).packet_identifier == sent
    assert (await client.expect(Disconnect)).reason_code == 0x8B
    assert await stopping == 0
    assert [message.payload for _, message in messages_in(tmp_path)] == [b"the last one"]


async def test_nothing_overtakes_a_message_that_could_not_be_stored(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await subscribed(broker, "client", "b")
        with commits_held_up(tmp_path) as other:
            other.execute("ROLLBACK")
            unlucky = "WHEN instr(NEW.body, CAST('unlucky' AS BLOB)) BEGIN SELECT RAISE(ABORT, 'unlucky'); END"
            other.execute(f"CREATE TRIGGER broken BEFORE INSERT ON message_group {unlucky}")
            other.execute("BEGIN IMMEDIATE")
            client.send("a", b"unlucky")
            await client.ping()
            client.protocol.publish("a", b"behind it")
            client.protocol.unsubscribe(["b"])  # it waits, and with it the reading that brought the message
            client.flush()
            session = session_of(broker, "client")
            await until(lambda: "b" in session.unsaved, "the UNSUBSCRIBE came")
        await client.expect(Disconnect)
        again = await Client("again").connect(tcp_port(broker))
        await again.publish("c", b"something else")
        assert [message.payload for _, message in messages_in(tmp_path)] == [b"something else"]


async def test_no_suback_leaves_for_a_subscription_that_could_not_be_saved(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await Client().connect(tcp_port(broker))
        with disk_full():
            client.protocol.subscribe([("a" * 10_000, 1)])
            client.flush()
            event = await client.expect(Disconnect)
            assert "the store failed" in event.properties[REASON_STRING]
        client = await Client().connect(tcp_port(broker))
        assert client.connack.session_present
        assert await client.subscribe("a" * 10_000) == [1]


async def test_an_unsubscribe_that_could_not_be_saved_takes_no_messages_with_it(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await subscribed(broker, "client", "a", "$share/group/a", receive_maximum=1)
        publisher = await Client("publisher").connect(tcp_port(broker))
        await publish_numbers(publisher, 3)
        await client.expect(Publish)
        with disk_full():
            client.protocol.unsubscribe(["a", "$share/group/a"])
            client.flush()
            event = await client.expect(Disconnect)
            assert "the store failed" in event.properties[REASON_STRING]
        client = await Client().connect(tcp_port(broker))
        assert sorted([(await client.receive()).payload for _ in range(6)]) == [b"0", b"0", b"1", b"1", b"2", b"2"]
        assert await client.unsubscribe("a", "$share/group/a", "a") == [SUCCESS, SUCCESS, NO_SUBSCRIPTION_EXISTED]
        assert stored(tmp_path, "SELECT topic_filter FROM session WHERE client_id = 'client'") == [("",)]


async def test_a_filter_that_another_connection_subscribes_while_it_is_unsubscribed_is_saved(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        first = await subscribed(broker, "client", "a")
        with commits_held_up(tmp_path):
            first.protocol.unsubscribe(["a"])
            first.flush()
            session = session_of(broker, "client")
            await until(lambda: "a" in session.unsaved, "the UNSUBSCRIBE came")
            second = Client()
            await second.open(tcp_port(broker))
            await first.expect(Disconnect)
        await second.expect(Connack)
        assert await second.subscribe("a") == [1]
        assert ("a",) in stored(tmp_path, "SELECT topic_filter FROM session")
        await (await Client("publisher").connect(tcp_port(broker))).publish("a", b"new")
        assert (await second.receive()).payload == b"new"


async def test_no_suback_leaves_while_another_connection_s_is_being_written(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        first = await Client().connect(tcp_port(broker))
        with commits_held_up(tmp_path):
            first.protocol.subscribe([("a", 1)])
            first.flush()
            await until(lambda: list(broker.services.subscribers.cursors_for("a")), "the first SUBSCRIBE came")
            second = Client()
            await second.open(tcp_port(broker))
            await until(lambda: broker.counters.packets_received == 3, "the second CONNECT came")
            assert broker.counters.connections_accepted == 1
        await second.expect(Connack)
        assert await second.subscribe("a") == [1]


async def test_no_connack_leaves_for_a_session_that_could_not_be_saved(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await Client("first").connect(tcp_port(broker))
        with disk_full():
            client = Client("c" * 256)
            await client.open(tcp_port(broker))
            assert (await client.expect(Connack)).reason_code == 0x83
        await until(lambda: broker.sessions.get("c" * 256) is None, "the session ended with its connection")


async def test_a_durable_subscriber_gets_all_that_was_acknowledged_before_a_kill(tmp_path: Path) -> None:
    gateway = await started(tmp_path)
    subscriber = await joined(gateway.port, "subscriber", "a/#", wishes=(RECEIVE,))
    acknowledged: set[int] = set()
    received: dict[int, str] = {}
    number = 0
    for life in range(1, 4):
        publisher = await Client("publisher").connect(gateway.port)
        reading = asyncio.create_task(receive_into(received, subscriber))
        sent: dict[int, int] = {}
        while len(acknowledged) < 500 * life:
            while len(sent) < 100:
                number += 1
                identifier = publisher.send(f"a/{number % 3}", b"%d" % number)
                assert identifier is not None
                sent[identifier] = number
            assert await take_puback(publisher, sent, acknowledged)
        await gateway.kill()
        while await take_puback(publisher, sent, acknowledged):
            pass
        await asyncio.gather(reading, return_exceptions=True)
        await gateway.start()
        subscriber = await Client("subscriber", wishes=(RECEIVE,)).connect(gateway.port)
        assert subscriber.connack.session_present
    while not acknowledged <= received.keys():
        note(received, await subscriber.receive())
    assert list(received) == sorted(received)  # what comes for the first time comes in order
    assert len(set(received.values())) == len(received)  # an identity each, over all lives of the process
    assert await gateway.stop() == 0


async def take_puback(publisher: Client, sent: dict[int, int], acknowledged: set[int]) -> bool:
    try:
        event = await publisher.event()
    except OSError:
        return False
    if not isinstance(event, Puback):
        return False
    acknowledged.add(sent.pop(event.packet_identifier))
    return True


async def receive_into(received: dict[int, str], subscriber: Client) -> None:
    while isinstance(event := await subscriber.event(), Publish):
        note(received, event)
        subscriber.acknowledge(event)


def note(received: dict[int, str], packet: Publish) -> None:
    """The same message may come again; then with the same identity."""
    identity = user_property(packet, "hf-id")
    assert identity is not None
    assert received.setdefault(int(packet.payload), identity) == identity


async def test_the_sync_ends_before_the_puback_is_written(tmp_path: Path) -> None:
    """The kernel's own record: between a PUBLISH read and its PUBACK sent lies a completed fdatasync of the WAL."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    trace = tmp_path / "trace"
    calls = "trace=fdatasync,fsync,pwrite64,read,recvfrom,write,sendto,openat"
    gateway = GatewayProcess(tmp_path / "store", "strace", "-f", "-xx", "-y", "-s", "64", "-e", calls, "-o", str(trace))
    await gateway.start()
    client = await Client().connect(gateway.port)
    for number in range(5):
        await client.publish("a", b"mark%d" % number)
    await gateway.stop()
    lines = trace.read_text().splitlines()
    for number in range(5):
        mark = "".join(f"\\x{byte:02x}" for byte in b"mark%d" % number)
        puback = f"\\x40\\x03\\x00\\x{number + 1:02x}\\x10"
        arrived = next(i for i, line in enumerate(lines) if mark in line)
        answered = next(i for i, line in enumerate(lines) if puback in line and i > arrived)
        assert any(completed_sync(line) for line in lines[arrived:answered]), f"PUBACK {number + 1} before any sync"


def completed_sync(line: str) -> bool:
    return re.search(r"(fdatasync|fsync)(\(.*| resumed>.*)= 0$", line) is not None
