"""Ranges of what was dropped: few for what belongs together, and an end to them for who makes identities up."""

import sqlite3
from collections.abc import Iterator

import pytest

from gateway.message import Message
from gateway.store import drops
from gateway.store.drops import RANGES_MOST, REJECTED, SCHEMA, Drops


@pytest.fixture
def store() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.executescript(SCHEMA)
    yield connection
    connection.close()


def note(store: sqlite3.Connection, *messages: Message) -> None:
    noted = Drops()
    for message in messages:
        noted.note(REJECTED, "gateway", message)
    write = noted.take()
    assert write is not None
    write(store)


def identified(seq: int, origin: str = "device") -> Message:
    return Message("a", b"", origin=origin, epoch=7, seq=seq, publisher="client")


def test_what_follows_one_another_is_one_range_over_commits(store: sqlite3.Connection) -> None:
    note(store, identified(1), identified(2))
    note(store, identified(3), identified(9))
    assert store.execute("SELECT first, last, messages FROM dropped").fetchall() == [(1, 3, 3), (9, 9, 1)]


def test_who_makes_up_identities_gets_only_so_many_ranges_and_all_are_counted(store: sqlite3.Connection) -> None:
    count = 3 * RANGES_MOST
    note(store, *(identified(2 * number + 1, f"made up {number}") for number in range(count)))
    note(store, identified(5, "another one"))
    (ranges, messages), *_ = store.execute("SELECT count(*), sum(messages) FROM dropped")
    assert (ranges, messages) == (RANGES_MOST + 1, count + 1)
    beyond = store.execute("SELECT origin, first, last, messages FROM dropped WHERE first = 0").fetchall()
    assert beyond == [("", 0, 0, count + 1 - RANGES_MOST)]
    note(store, Message("a", b"", origin="device", epoch=7, seq=1, publisher="somebody else"))
    assert store.execute("SELECT count(*) FROM dropped").fetchone() == (RANGES_MOST + 2,)


def test_who_makes_up_client_identifiers_does_not_fill_the_disk_with_ranges(
    store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drops, "RANGES_IN_ALL_MOST", 5)
    for number in range(8):
        note(store, Message("a", b"", origin="device", epoch=7, seq=1, publisher=f"made up {number}"))
    note(store, identified(2), Message("a", b"", publisher="somebody at QoS 0"))
    note(store, Message("a", b"", origin="device", epoch=7, seq=2, publisher="made up 1"))
    assert store.execute("SELECT publisher, last, messages FROM dropped").fetchall() == [
        ("made up 0", 1, 1),
        ("made up 1", 2, 2),
        ("made up 2", 1, 1),
        ("made up 3", 1, 1),
        ("made up 4", 1, 1),
        ("", 0, 5),
    ]
