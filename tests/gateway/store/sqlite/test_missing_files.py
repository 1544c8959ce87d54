"""A file of the store is missing, empty or cut, or another one is in its place: nothing vanishes without a word."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from gateway.errors import StoreError
from gateway.message import Message
from gateway.store import Cursor, MessageLog
from gateway.store.repair import repair
from gateway.store.sqlite import checkpoint, marks
from gateway.store.sqlite import folder as its_folder
from tests.gateway.store.support import append_all, epoch_of, opened, stored

FIRST, SECOND = 60, 40  # messages before and behind the moment of the older copies
CONSUMER = "route/central"
FILES = ("messages.sqlite", "messages.sqlite-wal", "messages.sqlite-shm", "lock", "devices.sqlite", "quarantine.sqlite")
WAL = ("messages.sqlite-wal", "messages.sqlite-shm")


@pytest.fixture(autouse=True)
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The WAL begins anew some times in a life of a hundred messages."""
    shrink_log(monkeypatch)


def shrink_log(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {"ROOM_PAGES": 80, "FULL_PAGES": 40, "AHEAD_FROM_PAGES": 20, "AHEAD_STEP_PAGES": 5, "LAST_FROM_PAGES": 35}
    for name, number in pages.items():
        monkeypatch.setattr(checkpoint, name, number)
    monkeypatch.setattr(its_folder, "NOTE_PAUSE_S", 0.0)  # the copies are not 0.05 s apart on a quick machine
    monkeypatch.setattr(marks, "file_id_of", lambda _: 1)  # the copies below stand for the store itself


class Life(NamedTuple):
    """A store that was stopped, with copies of the middle of its life, and as a kill leaves it at the end."""

    stopped: Path
    older: Path
    killed: Path
    epoch: int


class Lives(NamedTuple):
    one: Life
    other: Life


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """The folder of two lives, and their epochs."""
    folder = tmp_path_factory.mktemp("lived")
    with pytest.MonkeyPatch.context() as monkeypatch:
        shrink_log(monkeypatch)
        return folder, [asyncio.run(live(folder / name)) for name in ("one", "other")]


async def live(folder: Path) -> int:
    """A hundred messages wait for a consumer. Returns the epoch."""
    stopped, older, killed = (folder / name for name in ("stopped", "older", "killed"))
    async with opened(stopped) as log:
        Cursor(log, CONSUMER, ["#"]).close()
        await append_one_by_one(log, range(FIRST))
        shutil.copytree(stopped, older)
        await append_one_by_one(log, range(FIRST, FIRST + SECOND))
        shutil.copytree(stopped, killed)
        return epoch_of(stopped)


@pytest.fixture
def lives(lived: tuple[Path, list[int]], tmp_path: Path) -> Lives:
    """Two lives of the test's own."""
    shutil.copytree(lived[0], tmp_path / "lives")
    one, other = (
        Life(folder / "stopped", folder / "older", folder / "killed", epoch)
        for folder, epoch in zip((tmp_path / "lives/one", tmp_path / "lives/other"), lived[1], strict=True)
    )
    return Lives(one, other)


async def append_one_by_one(log: MessageLog, numbers: range) -> None:
    for number in numbers:
        await append_all(log, [Message("a", b"%d " % number + b"x" * 1500)])


def missing(path: Path, _: Path, __: Path) -> None:
    path.unlink(missing_ok=True)


def empty(path: Path, _: Path, __: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path, _: Path, __: Path) -> None:
    data = path.read_bytes() if path.exists() else b""
    path.write_bytes(data[: len(data) // 2])


def older_copy(path: Path, older: Path, _: Path) -> None:
    replace(path, older / path.name)


def another_store_s(path: Path, _: Path, other: Path) -> None:
    replace(path, other / path.name)


def replace(path: Path, source: Path) -> None:
    path.unlink(missing_ok=True)
    if source.exists():
        shutil.copy2(source, path)


Harm = Callable[[Path, Path, Path], None]


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
@pytest.mark.parametrize("harm", [missing, empty, cut, older_copy, another_store_s])
@pytest.mark.parametrize("file", FILES)
async def test_no_file_takes_acknowledged_messages_with_it(
    lives: Lives, file: str, harm: Harm, is_killed: bool
) -> None:
    one, other = lives
    folder = one.killed if is_killed else one.stopped
    harm(folder / file, one.older, other.killed if is_killed else other.stopped)
    await nothing_vanishes(folder, one.epoch)


@pytest.mark.parametrize("harm", [missing, older_copy, another_store_s])
async def test_nor_do_a_database_and_its_wal_together(lives: Lives, harm: Harm) -> None:
    for file in ("messages.sqlite", *WAL):
        harm(lives.one.killed / file, lives.one.older, lives.other.killed)
    await nothing_vanishes(lives.one.killed, lives.one.epoch)


async def test_a_wal_that_another_program_took_into_the_database_is_named_as_such_and_a_repair_keeps_all(
    lives: Lives,
) -> None:
    """The last program that closes a database removes its WAL: sqlite3 without -readonly, in a killed store."""
    killed = lives.one.killed
    stored(killed, "SELECT 1 FROM dropped")
    assert not (killed / WAL[0]).exists()
    refusal = await refused(killed)
    assert "perhaps another program opened the store for writing, took the WAL into it and removed it" in refusal
    await nothing_vanishes(killed, lives.one.epoch)
    assert await delivered(killed) == [*range(FIRST + SECOND)]


@pytest.mark.parametrize("file", FILES[:2])
async def test_a_folder_in_the_place_of_a_file_is_refused_by_its_path(lives: Lives, file: str) -> None:
    killed = lives.one.killed
    (killed / file).unlink()
    (killed / file).mkdir()
    assert await refused(killed) == f"message store {killed / file}: Is a directory"


@pytest.mark.parametrize("harm", [missing, empty])
async def test_a_start_warns_where_the_lock_file_does_not_know_the_store(
    lives: Lives, harm: Harm, caplog: pytest.LogCaptureFixture
) -> None:
    store = lives.one.stopped
    assert not await refused(store)
    assert "an older copy would not be known" not in caplog.text
    harm(store / "lock", store, store)
    assert not await refused(store)
    assert caplog.text.count(f"{store / 'lock'} says nothing of it: an older copy would not be known") == 1


async def nothing_vanishes(folder: Path, epoch: int) -> None:
    """A gateway refuses and says what to do, or goes on; either way what is not there is in a range."""
    is_empty = False
    if refusal := await refused(folder):
        assert "`holdfast gateway repair`" in refusal
        report = repair(folder, "gw", [CONSUMER])
        assert report.damage
        is_empty = not report.messages
    kept = [] if is_empty else await delivered(folder)
    ranges = stored(folder, f"SELECT first, last FROM dropped WHERE (reason, epoch) = ('damaged', {epoch})")
    for number in set(range(FIRST + SECOND)) - set(kept):
        assert any(first <= number + 1 <= last for first, last in ranges), (number, ranges)
    assert not await refused(folder)
    if refusal:
        assert repair(folder, "gw", [CONSUMER]).damage == []


async def refused(folder: Path) -> str:
    """What a gateway says that does not start on a store, "" for one that does."""
    try:
        async with opened(folder):
            return ""
    except StoreError as error:
        return str(error)


async def delivered(folder: Path) -> list[int]:
    async with opened(folder) as log:
        cursor = Cursor(log, CONSUMER, ["#"])
        found: list[int] = []
        while deliveries := await cursor.fetch_now(1000):
            found += [int(one.message.payload.split()[0]) for one in deliveries]
        return found
