"""Ranges of what was dropped: few for what belongs together, and a limited number for made-up identities."""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from gateway.message import Message
from gateway.store.tables import drops
from gateway.store.tables.drops import BUDGETS, EVICTED, GATEWAY, REJECTED, SCHEMA, SELECTED, Budget, Drops
from tests.gateway.store.support import hold_up, opened, stored

REFUSED, LOST = BUDGETS[True], BUDGETS[False]


@pytest.fixture
def store() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.executescript(SCHEMA)
    yield connection
    connection.close()


def note(store: sqlite3.Connection, *messages: Message, reason: str = EVICTED) -> None:
    noted = Drops()
    for message in messages:
        noted.note(reason, GATEWAY, message)
    noted(store)


def identified(seq: int, origin: str = "device", publisher: str = "client") -> Message:
    return Message("a", b"", origin=origin, epoch=7, seq=seq, publisher=publisher)


def steps_to_note(store: sqlite3.Connection, *messages: Message, reason: str) -> int:
    """SQLite's steps until all of it is written."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    store.set_progress_handler(count, 1)
    try:
        note(store, *messages, reason=reason)
    finally:
        store.set_progress_handler(None, 0)
    return steps


def test_what_follows_one_another_is_one_range_over_commits(store: sqlite3.Connection) -> None:
    note(store, identified(1), identified(2))
    note(store, identified(3), identified(9))
    assert store.execute("SELECT first, last, messages FROM dropped").fetchall() == [(1, 3, 3), (9, 9, 1)]
    note(store, identified(2), identified(3))
    note(store, identified(4))
    assert store.execute("SELECT sum(messages) FROM dropped").fetchone() == (7,)


def test_what_a_route_leaves_out_in_an_hour_is_one_range_for_each_epoch_whatever_lies_between(
    store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = time.time()
    for minutes in range(0, 119, 20):
        monkeypatch.setattr(time, "time", lambda minutes=minutes: moment + 60 * minutes)
        seqs = [10 * minutes + 1, 10 * minutes + 5, 10 * minutes + 9]
        note(store, *map(identified, seqs), reason=SELECTED)
        note(store, identified(minutes, "other"), identified(0, ""), reason=SELECTED)
    rows = store.execute("SELECT origin, first, last, messages FROM dropped ORDER BY origin, first").fetchall()
    assert rows == [
        ("", 0, 0, 6),
        ("device", 1, 409, 9),
        ("device", 601, 1009, 9),
        ("other", 0, 40, 3),
        ("other", 60, 100, 3),
    ]


@pytest.mark.parametrize(("reason", "budget"), [(REJECTED, REFUSED), (EVICTED, LOST)])
def test_a_client_that_makes_up_identities_gets_only_so_many_ranges_and_all_are_counted(
    store: sqlite3.Connection, reason: str, budget: Budget
) -> None:
    most, count = budget.of_one, 3 * budget.of_one
    for begin in range(0, count, most // 2):  # over several commits
        made_up = (identified(2 * number + 1, f"made up {number}") for number in range(begin, begin + most // 2))
        note(store, *made_up, reason=reason)
    note(store, identified(5, "another one"), reason=reason)
    assert store.execute("SELECT count(*), sum(messages) FROM dropped").fetchone() == (most + 1, count + 1)
    beyond = store.execute("SELECT origin, first, last, messages FROM dropped WHERE first = 0").fetchall()
    assert beyond == [("", 0, 0, count + 1 - most)]
    note(store, identified(1, publisher="another client"), reason=reason)
    assert store.execute("SELECT count(*) FROM dropped").fetchone() == (most + 2,)


@pytest.mark.parametrize(("reason", "budget"), [(REJECTED, REFUSED), (EVICTED, LOST)])
def test_a_flood_of_one_client_gathers_no_more_than_its_ranges(
    store: sqlite3.Connection, reason: str, budget: Budget
) -> None:
    """The newest of them takes in what comes behind; identities of ever new epochs are counted."""
    count = 5 * budget.of_one
    flood = [identified(2 * number + 1) for number in range(count)]
    flood += [Message("a", b"", origin="device", epoch=8 + n, seq=1, publisher="client") for n in range(count)]
    note(store, *flood, reason=reason)
    assert store.execute("SELECT count(*), sum(messages) FROM dropped").fetchone() == (budget.of_one + 1, 2 * count)
    last = store.execute("SELECT last, messages FROM dropped WHERE origin != '' ORDER BY last DESC").fetchone()
    assert last == (2 * count - 1, count - budget.of_one + 1)


def test_a_flood_of_made_up_clients_gathers_no_more_than_its_ranges(store: sqlite3.Connection) -> None:
    count = 3 * REFUSED.at_once
    gathered = Drops()
    for number in range(count):
        gathered.note(REJECTED, GATEWAY, identified(1, publisher=f"made up {number}"))
    gathered.note(EVICTED, GATEWAY, identified(1))
    gathered(store)
    assert store.execute("SELECT count(*), sum(messages) FROM dropped").fetchone() == (REFUSED.at_once + 2, count + 1)
    beyond = store.execute("SELECT reason, messages FROM dropped WHERE publisher = ''").fetchall()
    assert beyond == [(REJECTED, count - REFUSED.at_once)]
    assert store.execute("SELECT origin, first FROM dropped WHERE reason = 'evicted'").fetchall() == [("device", 1)]


def test_a_range_costs_the_same_however_many_there_are(store: sqlite3.Connection) -> None:
    def round_of(number: int) -> int:
        messages = (identified(2 * seq + 1, f"{number}") for seq in range(REFUSED.of_one))
        return steps_to_note(store, *messages, reason=REJECTED)

    first = round_of(0)
    for number in range(1, 20):
        assert round_of(number) < 2 * first


def test_refused_messages_of_made_up_clients_take_no_room_from_others(
    store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest of them are counted without identities, so that there is room for new ones."""
    monkeypatch.setitem(BUDGETS, True, Budget(100, 500, 1000))
    count = 2000
    for number in range(count):
        note(store, identified(1, publisher=f"made up {number}"), reason=REJECTED)
    note(store, identified(3))
    assert store.execute("SELECT publisher, first, last FROM dropped WHERE reason = 'evicted'").fetchall() == [
        ("client", 3, 3)
    ]
    ranges, messages = store.execute("SELECT count(*), sum(messages) FROM dropped WHERE reason = 'rejected'").fetchone()
    assert 400 < ranges <= 500
    assert messages == count
    newest = f"made up {count - 1}"
    assert store.execute("SELECT count(*) FROM dropped WHERE publisher = ?", (newest,)).fetchone() == (1,)
    assert store.execute("SELECT count(*) FROM dropped WHERE publisher = 'made up 0'").fetchone() == (0,)


def test_a_new_loss_has_its_range_however_many_there_were(
    store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BUDGETS, False, Budget(1000, 5, 1000))
    monkeypatch.setattr(drops, "MERGED_AT_ONCE", 2)
    for number in range(8):
        note(store, identified(1, publisher=f"made up {number}"))
        assert store.execute("SELECT count(*) FROM dropped").fetchone()[0] <= 5
    note(store, Message("a", b"", publisher="a client at QoS 0"))
    note(store, identified(2, publisher="made up 7"))
    assert store.execute("SELECT sum(messages) FROM dropped").fetchone() == (10,)
    newest = store.execute(
        "SELECT publisher, last, messages FROM dropped WHERE publisher != '' ORDER BY rowid"
    ).fetchall()
    assert newest[-2:] == [("made up 7", 2, 2), ("a client at QoS 0", 0, 1)]


def test_the_newest_ranges_of_both_kinds_are_found_and_none_that_a_rule_left_out(store: sqlite3.Connection) -> None:
    for number in range(20):
        note(store, identified(10 * number, publisher=f"lost {number}"))
        note(store, identified(10 * number, publisher=f"refused {number}"), reason=REJECTED)
        note(store, identified(10 * number, publisher=f"left out {number}"), reason=SELECTED)
    found = [one.publisher for one in drops.newest(store, 2)]
    assert sorted(found) == ["lost 18", "lost 19", "refused 18", "refused 19"]
    steps = []
    store.set_progress_handler(lambda: steps.append(1), 1)
    drops.newest(store, 2)
    store.set_progress_handler(None, 0)
    assert len(steps) < 1000


async def test_a_commit_writes_no_more_ranges_however_often_clients_asked_for_it(tmp_path: Path) -> None:
    """What gathers while a commit runs is one piece of work, within the bounds of one."""
    begun, ended = Event(), Event()
    async with opened(tmp_path) as log:
        running = log.submit([lambda _: hold_up(begun, ended)])
        await asyncio.get_running_loop().run_in_executor(None, begun.wait)
        count = 3 * REFUSED.of_one
        for number in range(count):
            log.drop(REJECTED, GATEWAY, identified(2 * number + 1))
            waiting = log.submit([Message("a", b"")])
        ended.set()
        await asyncio.gather(running, waiting)
        assert stored(tmp_path, "SELECT count(*), sum(messages) FROM dropped") == [(REFUSED.of_one, count)]


async def test_ranges_of_commits_that_failed_are_written_by_the_next_one(tmp_path: Path) -> None:
    """However many fail, what gathers stays within the bounds of one."""

    def fail(_: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    async with opened(tmp_path) as log:
        count = 3 * REFUSED.of_one
        for number in range(count):
            log.drop(REJECTED, GATEWAY, identified(2 * number + 1))
            with pytest.raises(sqlite3.OperationalError):
                await log.submit([fail])
        assert stored(tmp_path, "SELECT * FROM dropped") == []
        await log.submit([Message("a", b"")])
        assert stored(tmp_path, "SELECT count(*), sum(messages) FROM dropped") == [(REFUSED.of_one, count)]
