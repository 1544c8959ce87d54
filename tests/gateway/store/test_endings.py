"""What waited for a session or a share group that has ended leaves a range in the store."""

import asyncio
import contextlib
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway import selectors
from gateway.broker import Broker
from gateway.loop import pace
from gateway.message import Message
from gateway.store import Cursor, Endings, MessageLog, endings, maintenance
from gateway.store.tables.log_rows import LogRow
from gateway.subscriptions import Subscription
from tests.gateway.auth.test_identities import EPOCH, as_from
from tests.gateway.store.support import append_all, append_each, epoch_of, numbered, opened, stored
from tests.gateway.store.test_log import damage
from tests.gateway.store.test_log_rows import run_of
from tests.gateway.support import connected, running, subscribed, until
from wire.codec.packets import MQTT_3_1_1, NO_LOCAL, Puback, Publish, Pubrel

GROUP = "$share/group/a/#"


def ended(folder: Path) -> list[tuple[Any, ...]]:
    columns = "consumer, publisher, origin, epoch, first, last, messages"
    return stored(folder, f"SELECT {columns} FROM dropped WHERE reason = 'ended' ORDER BY consumer, publisher")


def of_device(consumer: str, first: int, last: int, messages: int) -> tuple[Any, ...]:
    return (consumer, "device", "device", EPOCH, first, last, messages)


async def away(broker: Broker, *filters: str, **options: Any) -> None:
    subscriber = await subscribed(broker, "subscriber", *filters, **options)
    await subscriber.disconnect()


async def publish(broker: Broker, count: int, topic: str = "a/b") -> None:
    """Publishes messages of a device that names their identities, and of a client that does not."""
    device, other = await connected(broker, "device"), await connected(broker, "other")
    for seq in range(1, count + 1):
        await device.publish(topic, **as_from("device", seq))
        await device.publish("elsewhere")
        await other.publish(topic)


def end(noting: Endings, *cursors: Cursor) -> None:
    for cursor in cursors:
        noting.note(cursor)
        cursor.drop()


async def nothing_waits(log: MessageLog) -> None:
    await until(lambda: log.space.needed_count == 0, "nothing is kept for anybody")


async def test_a_session_that_expires_leaves_a_range_for_each_publisher(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await away(broker, "a/#", session_expiry_s=1)
        await publish(broker, 5)
        await until(lambda: broker.sessions.get("subscriber") is None, "expired")
        await nothing_waits(broker.log)
        assert broker.counters.messages_dropped["ended"] == 10
        epoch = epoch_of(tmp_path)
    # The device's other messages have numbers between those of the other client.
    ours = ("session/subscriber", "other", "test-gateway", epoch, 2, 10, 5)
    assert ended(tmp_path) == [of_device("session/subscriber", 1, 5, 5), ours]


async def test_a_clean_start_leaves_one_and_the_new_session_is_not_concerned(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await away(broker, "a/#")
        await publish(broker, 3)
        subscriber = await subscribed(broker, "subscriber", "a/#", clean_start=True)
        device = await connected(broker, "device")
        await device.publish("a/b", **as_from("device", 4))
        await subscriber.receive()
        await nothing_waits(broker.log)
    assert ended(tmp_path)[0] == of_device("session/subscriber", 1, 3, 3)


@pytest.mark.parametrize("leaves", ["unsubscribes", "ends"])
async def test_the_last_member_of_a_group_leaves_one_for_the_group(tmp_path: Path, leaves: str) -> None:
    async with running(tmp_path) as broker:
        await away(broker, GROUP)
        first = await subscribed(broker, "first", GROUP, session_expiry_s=0, receive_maximum=1)
        await first.disconnect()  # and one member is left
        await publish(broker, 3)
        assert broker.counters.messages_dropped["ended"] == 0
        subscriber = await connected(broker, "subscriber", receive_maximum=1, clean_start=leaves == "ends")
        if leaves == "unsubscribes":
            await subscriber.expect(Publish)
            await subscriber.unsubscribe(GROUP)
        await nothing_waits(broker.log)
    assert ended(tmp_path)[0] == of_device("share/group/a/#", 1, 3, 3)


async def test_what_was_acknowledged_is_not_in_it_and_what_was_not_is(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await subscribed(broker, "subscriber", "a/b", options=2, session_expiry_s=0, receive_maximum=3)
        device = await connected(broker, "device")
        for seq in range(1, 7):
            await device.publish("a/b", **as_from("device", seq))
        await subscriber.receive()
        sent = [await subscriber.expect(Publish) for _ in range(3)]
        subscriber.acknowledge(sent[1])
        await subscriber.expect(Publish)  # so the gateway has read that
        subscriber.cut()
        await nothing_waits(broker.log)
    assert ended(tmp_path) == [of_device("session/subscriber", 2, 6, 4)]


async def test_qos_2_messages_that_were_received_are_not_in_it(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await subscribed(broker, "subscriber", "a/b", options=2, session_expiry_s=0)
        device = await connected(broker, "device")
        for seq in range(1, 4):
            await device.publish_once("a/b", **as_from("device", seq))
        sent = [await subscriber.expect(Publish) for _ in range(3)]
        subscriber.acknowledge(sent[0])
        await subscriber.expect(Pubrel)
        subscriber.cut()
        await nothing_waits(broker.log)
    assert ended(tmp_path) == [of_device("session/subscriber", 2, 3, 2)]


async def test_what_a_group_has_begun_to_give_to_a_member_ends_with_that(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        member = await subscribed(broker, "member", GROUP, options=2, session_expiry_s=0)
        device = await connected(broker, "device")
        await device.publish_once("a/b", **as_from("device", 1))
        await member.expect(Publish)
        another = await subscribed(broker, "another", GROUP, options=2)
        member.cut()
        await until(lambda: broker.sessions.get("member") is None, "ended")
        await device.publish_once("a/b", **as_from("device", 2))
        await another.receive()
        await nothing_waits(broker.log)
    assert ended(tmp_path) == [of_device("session/member", 1, 1, 1)]


async def test_a_session_for_which_nothing_waits_leaves_none(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await away(broker, "a/#")
        here = await subscribed(broker, "here", "b", session_expiry_s=0)
        await publish(broker, 3, topic="b")
        for _ in range(6):
            await here.receive()
        await here.disconnect()
        await connected(broker, "subscriber", clean_start=True)
        await nothing_waits(broker.log)
    assert ended(tmp_path) == []


@pytest.mark.parametrize("topics", [["a/b"], ["a/b", "elsewhere"]])
async def test_messages_that_came_many_at_once_are_in_it_one_by_one(tmp_path: Path, topics: list[str]) -> None:
    async with running(tmp_path) as broker:
        await away(broker, "a/#")
        other = await connected(broker, "other", protocol_level=MQTT_3_1_1, session_expiry_s=0)
        for topic in topics:
            await other.publish(topic)
        for number in range(100):
            other.protocol.publish(topics[number % len(topics)], b"")
        other.flush()
        for _ in range(100):
            await other.expect(Puback)
        await connected(broker, "subscriber", clean_start=True)
        await nothing_waits(broker.log)
        epoch = epoch_of(tmp_path)
    messages, last = (101, 101) if len(topics) == 1 else (51, 101)
    assert ended(tmp_path) == [("session/subscriber", "other", "test-gateway", epoch, 1, last, messages)]


async def test_what_the_client_did_not_want_is_not_in_it(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        both = await subscribed(broker, "device", "a/b", options=1 | NO_LOCAL, session_expiry_s=0, receive_maximum=1)
        for _ in range(3):
            await both.publish("a/b")
        other = await connected(broker, "other")
        for _ in range(2):
            await other.publish("a/b")
        both.cut()
        await nothing_waits(broker.log)
    ((consumer, publisher, *_, messages),) = ended(tmp_path)
    assert (consumer, publisher, messages) == ("session/device", "other", 2)


async def test_what_waited_for_a_filter_in_whose_place_another_one_came_is_in_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        endings = Endings(log)
        endings.open()
        cursor = Cursor(log, "session/link", [Subscription("readings/+")])
        await append_all(log, numbered(20, "readings/1"))
        cursor.subscribe(Subscription("+/1", 2, log.head, earlier=(("readings/+", 0),)))
        endings.withdraw(cursor, ["readings/+"])
        cursor.unsubscribe("readings/+")
        endings.withdraw(cursor, ["+/1"])
        cursor.unsubscribe("+/1")
        await until(lambda: log.counters.messages_dropped["ended"] == 20, "a range has them")
        await endings.close()


async def test_it_is_looked_through_in_pieces_while_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "PIECE", 2)
    monkeypatch.setattr(endings, "PAUSE_S", 3600.0)  # for ever, for this test
    async with running(tmp_path) as broker:
        await away(broker, "a/#")
        await publish(broker, 20)
        await connected(broker, "subscriber", clean_start=True, session_expiry_s=0)
        await publish(broker, 2, topic="b")
        assert broker.log.space.needed_count >= 40
    assert ended(tmp_path)[0] == of_device("session/subscriber", 1, 20, 20)  # at the latest when the gateway ends


async def test_what_the_gateway_drops_meanwhile_is_not_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "PIECE", 1)
    monkeypatch.setattr(endings, "PAUSE_S", 3600.0)
    async with running(tmp_path) as broker:
        await away(broker, "a/#")
        await publish(broker, 20)
        await connected(broker, "subscriber", clean_start=True, session_expiry_s=0)
        await broker.log.eviction.evict(28, 0)  # its 1st own message was looked at, the 2nd to 10th are dropped
    assert ended(tmp_path)[0] == of_device("session/subscriber", 1, 20, 11)


@pytest.mark.usefixtures("from_file")
async def test_sessions_that_end_together_are_scanned_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "TOGETHER", 6)
    async with opened(tmp_path) as log:
        ending = Endings(log)
        cursors = [Cursor(log, str(number), ["a", f"a/{number}"]) for number in range(10)]
        await append_all(log, [*numbered(10), *(Message(f"a/{number}", b"") for number in range(5)), *numbered(10)])
        asked = []
        read_rows = log.read_rows

        async def noted(after: int) -> list[LogRow]:
            asked.append(after)
            return await read_rows(after)

        monkeypatch.setattr(log, "read_rows", noted)
        end(ending, *cursors)
        await ending.close()
        assert log.space.needed_count == 0
        assert asked == [0, 0]
    messages = stored(tmp_path, "SELECT consumer, first, last, messages FROM dropped ORDER BY consumer")
    assert messages == [(str(number), 1, 25, 21 if number < 5 else 20) for number in range(10)]


async def test_a_session_that_ends_when_all_that_waited_was_dropped_leaves_no_range_of_its_own(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        ending, cursor = Endings(log), Cursor(log, "away", ["a"])
        Cursor(log, "slow", ["#"])
        await append_all(log, numbered(10))
        end(ending, cursor)
        await log.eviction.evict(10, 0)
        await ending.close()
    assert stored(tmp_path, "SELECT reason, consumer, messages FROM dropped ORDER BY consumer") == [
        ("evicted", "gateway", 10),
        ("evicted", "slow", 10),
    ]


def fail_to_read_behind(
    monkeypatch: pytest.MonkeyPatch, log: MessageLog, last: int, error: Exception
) -> Callable[[], None]:
    """Up to a position nothing can be read, until what is returned is called."""
    read_rows, is_broken = log.read_rows, True

    async def read(after: int) -> list[LogRow]:
        if is_broken and after < last:
            raise error
        return await read_rows(after)

    def mend() -> None:
        nonlocal is_broken
        is_broken = False

    monkeypatch.setattr(log, "read_rows", read)
    return mend


@pytest.mark.parametrize("error", [sqlite3.OperationalError("disk I/O error"), OSError("no room for a note")])
async def test_what_waited_and_cannot_be_read_is_kept_until_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    monkeypatch.setattr(endings, "RETRY_S", 0.01)
    async with running(tmp_path) as broker:
        await away(broker, "a/#", session_expiry_s=1)
        await publish(broker, 5)
        mend = fail_to_read_behind(monkeypatch, broker.log, sys.maxsize, error)
        said = f"the messages that waited for session/subscriber cannot be read, attempts go on: {error}"
        await until(lambda: caplog.text.count(said) >= 2, "it failed twice")
        assert broker.log.space.needed_count > 0
        mend()
        await nothing_waits(broker.log)
    assert ended(tmp_path)[0] == of_device("session/subscriber", 1, 5, 5)


async def test_what_cannot_be_read_holds_up_no_others_range_and_is_left_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as log:
        ending = Endings(log)
        here, behind = Cursor(log, "here", ["a"]), Cursor(log, "behind", ["b"])
        await append_all(log, [*numbered(3), *numbered(3, "b")])
        fail_to_read_behind(monkeypatch, log, 3, sqlite3.OperationalError("disk I/O error"))
        end(ending, here, behind)
        await ending.close()
    assert stored(tmp_path, "SELECT consumer, first, last FROM dropped") == [("behind", 4, 6)]
    async with opened(tmp_path) as log:
        ending = Endings(log)
        ending.open()
        await ending.close()
    query = "SELECT consumer, first, last FROM dropped ORDER BY first"
    assert stored(tmp_path, query) == [("here", 1, 3), ("behind", 4, 6)]


async def test_what_is_damaged_among_it_has_a_range_of_its_own(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = Cursor(log, "away", ["a"])
        await append_each(log, numbered(9))
        cursor.close()
    damage(tmp_path, [3, 4])
    async with opened(tmp_path) as log:
        ending = Endings(log)
        end(ending, Cursor(log, "away", ["a"]))
        await ending.close()
    query = "SELECT reason, first, last, messages FROM dropped ORDER BY reason, first"
    assert stored(tmp_path, query) == [("damaged", 3, 3, 1), ("damaged", 4, 4, 1), ("ended", 1, 9, 7)]


async def test_a_session_whose_scan_is_done_has_its_range_while_others_are_scanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as log:
        ending = Endings(log)
        short, long = Cursor(log, "short", ["a"]), Cursor(log, "long", ["b"])
        await append_all(log, numbered(3))
        await append_all(log, numbered(3, "b"))
        is_free, read_rows = asyncio.Event(), log.read_rows

        async def slowly(after: int) -> list[LogRow]:
            if after >= 3:
                await is_free.wait()
            return (await read_rows(after))[:1]

        monkeypatch.setattr(log, "read_rows", slowly)
        end(ending, short, long)
        await until(lambda: stored(tmp_path, "SELECT consumer FROM dropped"), "written")
        assert stored(tmp_path, "SELECT consumer FROM dropped") == [("short",)]
        is_free.set()
        await ending.close()


async def test_after_a_kill_the_next_start_goes_on_with_what_was_not_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, killed = tmp_path / "store", tmp_path / "killed"
    with monkeypatch.context() as slow:
        slow.setattr(endings, "PIECE", 1)
        slow.setattr(endings, "PAUSE_S", 3600.0)
        async with running(store) as broker:
            await away(broker, "a/#", "$share/group/a/#")
            await publish(broker, 20)
            again = await connected(broker, "subscriber", clean_start=True, session_expiry_s=0)
            await again.publish("b")  # with it, that the session has ended is durable
            shutil.copytree(store, killed)
        await check_that_both_have_ended(store)
    async with running(killed) as broker:
        await nothing_waits(broker.log)
    await check_that_both_have_ended(killed)


async def test_a_kill_just_behind_an_end_leaves_no_second_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, killed = tmp_path / "store", tmp_path / "killed"
    async with running(store) as broker:
        await away(broker, "a/#", GROUP)
        await publish(broker, 3)
        monkeypatch.setattr(maintenance, "MAINTENANCE_INTERVAL_S", 3600.0)  # for ever, for this test
        again = await connected(broker, "subscriber", clean_start=True, session_expiry_s=0)
        await nothing_waits(broker.log)
        await again.publish("b")  # with it, the ranges are durable
        await again.publish("b")  # and no session waits for this one
        shutil.copytree(store, killed)
    assert len(ended(store)) == 4
    async with running(killed) as broker:
        await nothing_waits(broker.log)
    assert ended(killed) == ended(store)


async def check_that_both_have_ended(folder: Path) -> None:
    consumers = ("session/subscriber", "share/group/a/#")
    assert [row for row in ended(folder) if row[1] == "device"] == [of_device(one, 1, 20, 20) for one in consumers]
    assert stored(folder, "SELECT * FROM ending") == []
    assert stored(folder, "SELECT * FROM session WHERE client_id = 'subscriber'") == []


async def test_a_gateway_that_ends_leaves_to_the_next_start_what_takes_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as late:
        late.setattr(endings, "CLOSE_S", -1.0)
        late.setattr(endings, "PIECE", 1)
        late.setattr(endings, "PAUSE_S", 3600.0)
        async with running(tmp_path) as broker:
            await away(broker, "a/#")
            await publish(broker, 20)
            await connected(broker, "subscriber", clean_start=True, session_expiry_s=0)
    assert ended(tmp_path) == []
    async with running(tmp_path) as broker:
        await nothing_waits(broker.log)
    assert ended(tmp_path)[0] == of_device("session/subscriber", 1, 20, 20)


@pytest.mark.parametrize("corrupt", ["topic_filter = ''", "1"])
async def test_what_waited_for_a_session_whose_rows_are_corrupt_leaves_a_range(tmp_path: Path, corrupt: str) -> None:
    async with running(tmp_path) as broker:
        await away(broker, "a/#")
        await publish(broker, 5)
    with contextlib.closing(sqlite3.connect(tmp_path / "messages.sqlite")) as file:
        file.execute(f"UPDATE session SET crc = crc + 1 WHERE client_id = 'subscriber' AND {corrupt}")
        file.commit()
    async with running(tmp_path) as broker:
        assert broker.sessions.get("subscriber") is None
    own, *others = [row[2:] for row in ended(tmp_path) if row[1] == "device"]
    assert own == ("device", EPOCH, 1, 5, 5)
    # Where nothing is left of its subscriptions, all that came may have been for it.
    assert [row[0] for row in others] == ([] if "topic_filter" in corrupt else ["test-gateway"])


async def test_one_message_at_most_is_given_to_a_selector_before_other_tasks_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "SLICE_S", 0.0)
    asked = 0
    passing = selectors.passing

    def counted(*args: Any) -> Any:
        nonlocal asked
        asked += 1
        return passing(*args)

    monkeypatch.setattr(endings, "passing", counted)
    async with opened(tmp_path) as log:
        noting = Endings(log)
        cursor = Cursor(log, "c", [Subscription("a", select="json > 0")])
        await log.submit([run_of(["a"] * 200, [b"1"] * 200)])
        end(noting, cursor)
        most = total = 0
        for _ in range(10_000):
            if total >= 200:
                break
            await asyncio.sleep(0)
            most, total, asked = max(most, asked), total + asked, 0
        assert total == 200
        assert most == 1
        await nothing_waits(log)
        await noting.close()
    assert [row[-1] for row in ended(tmp_path)] == [200]
