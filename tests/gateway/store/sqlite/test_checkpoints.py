"""What is in the write-ahead log goes into the database while commits go on."""

import itertools
import shutil
import sqlite3
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from gateway.message import Message
from gateway.store import MESSAGES, Work, wills
from gateway.store.database import Database
from gateway.store.repair import repair
from gateway.store.sqlite import checkpoint, wal
from gateway.store.sqlite.folder import TakenFolder, take_folder
from gateway.store.sqlite.wal import hides_transactions
from tests.gateway.store.support import disk_full, messages_in
from tests.gateway.support import LONG_S
from wire.codec.packets import Publish


def times_begun_anew(folder: Path) -> int:
    """From the log's header [www.sqlite.org/fileformat2.html, section 4.1]."""
    return int(struct.unpack_from(">I", (folder / "messages.sqlite-wal").read_bytes(), 12)[0])


def length_of(folder: Path) -> int:
    """Pages that the log's file has room for."""
    return (folder / "messages.sqlite-wal").stat().st_size // (wal.FRAME_HEADER_SIZE + wal.PAGE_SIZE)


def commit(database: Database, work: list[list[Work]]) -> list[list[Any]]:
    results = database.commit(work)
    database.checkpoint()
    return results


PAGES = {
    "ROOM_PAGES": 120,
    "FULL_PAGES": 40,
    "AHEAD_FROM_PAGES": 20,
    "AHEAD_STEP_PAGES": 5,
    "LAST_FROM_PAGES": 35,
    "LAST_PAGES": 2,
}


@pytest.fixture
def taken(tmp_path: Path) -> Iterator[TakenFolder]:
    with closing(take_folder(tmp_path)) as taken:
        yield taken


@pytest.fixture
def database(tmp_path: Path, taken: TakenFolder, monkeypatch: pytest.MonkeyPatch) -> Database:
    for name, pages in PAGES.items():
        monkeypatch.setattr(checkpoint, name, pages)
    return Database(tmp_path / MESSAGES, "gw", taken)


def test_the_wal_is_restarted_while_commits_never_pause(tmp_path: Path, database: Database) -> None:
    count = len(commit(database, [[Message("a", b"0" * 300)]]))
    before, deadline = times_begun_anew(tmp_path), time.monotonic() + LONG_S
    while times_begun_anew(tmp_path) < before + 3:
        assert time.monotonic() < deadline
        count += len(commit(database, [[Message("a", b"%d" % count * 300)]]))
    database.close()
    assert [message.payload for _, message in messages_in(tmp_path)] == [
        b"%d" % number * 300 for number in range(count)
    ]


@pytest.mark.parametrize("size", [10, 500, 1000, 1500, 3000])
def test_the_log_keeps_the_length_that_it_has_before_it_is_used(tmp_path: Path, database: Database, size: int) -> None:
    length = (tmp_path / "messages.sqlite-wal").stat().st_size
    assert length_of(tmp_path) == checkpoint.ROOM_PAGES
    for _ in range(400):
        commit(database, [[Message("a", bytes(size))]])
        assert (tmp_path / "messages.sqlite-wal").stat().st_size == length
    database.close()


def test_a_disk_with_little_left_keeps_it_for_what_is_stored(
    tmp_path: Path, taken: TakenFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "room_bytes", lambda _: 1_000_000)
    database = Database(tmp_path / MESSAGES, "gw", taken)
    assert length_of(tmp_path) == 1  # what says that the log is in use
    commit(database, [[Message("a", b"1")]])
    database.close()
    assert len(messages_in(tmp_path)) == 1


def test_a_log_that_was_never_used_is_no_damage(tmp_path: Path, database: Database) -> None:
    shutil.copytree(tmp_path, tmp_path / "killed")
    database.close()
    assert not hides_transactions(tmp_path / "killed" / "messages.sqlite")
    assert repair(tmp_path / "killed", "gw", []).damage == []


def test_the_log_stays_short_though_commits_never_pause(tmp_path: Path, database: Database) -> None:
    for number in range(2000):
        commit(database, [[Message("a", b"%d" % number)]])
    assert length_of(tmp_path) <= 2 * checkpoint.ROOM_PAGES
    database.close()


def test_the_log_stays_short_whatever_is_written_besides_messages(tmp_path: Path, database: Database) -> None:
    for number in range(200):
        publish = Publish("a", b"w" * 20_000)
        commit(database, [[wills.save(wills.StoredWill(str(number), None, publish, 0))]])
    assert length_of(tmp_path) <= 2 * checkpoint.ROOM_PAGES
    database.close()


def test_what_cannot_be_copied_on_a_full_disk_is_copied_later(
    tmp_path: Path, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with disk_full(200 * 4096):  # the database gets there first: its log is kept shorter
        count = commit_until_full(database)
    assert "cannot be copied into its file yet" in caplog.text
    for _ in range(100):
        count += len(commit(database, [[Message("a", b"%d" % count * 300)]]))
    database.close()
    assert [message.payload for _, message in messages_in(tmp_path)] == [
        b"%d" % number * 300 for number in range(count)
    ]


def test_the_log_stays_short_where_no_thread_can_be_started(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ThreadPoolExecutor, "submit", Mock(side_effect=RuntimeError))
    for number in range(400):
        commit(database, [[Message("a", b"%d" % number * 300)]])
    assert length_of(tmp_path) == checkpoint.ROOM_PAGES
    database.close()


def commit_until_full(database: Database) -> int:
    for count in itertools.count():
        try:
            commit(database, [[Message("a", b"%d" % count * 300)]])
        except sqlite3.OperationalError:
            return count
    raise AssertionError
