"""A dictionary on disk beside a dict: what a call said is there, and what the medium has changed is known."""

import contextlib
import random
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gateway.errors import StoreError
from gateway.store import shelf
from gateway.store.sqlite.quarantine import FILE, Note, notes_in, set_aside
from gateway.store.sqlite.shelf import Shelf
from tests.gateway.store.support import disk_full, stored

ROOT = Path(__file__).parents[4]
TABLE = "thing"


def what_is_in(path: Path) -> dict[str, bytes | None]:
    return {entry.key: entry.value for entry in shelf.read(path, TABLE, bytes)}


def test_random_changes_agree_with_a_dict(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    keys = [f"{name}{rest}" for name in ("a", "b", "ä/ö") for rest in ("", *(f"\0{number}" for number in range(9)))]
    model: dict[str, bytes] = {}
    for _ in range(3):
        opened = Shelf(tmp_path / "file", TABLE, is_synced=chance.random() < 0.5)
        for _ in range(30):
            some = chance.sample(keys, chance.randrange(len(keys)))
            added = {key: chance.randbytes(chance.choice((0, 5, 5000))) for key in chance.sample(some, len(some) // 2)}
            removed = [key for key in some if key not in added]
            opened.change(added, removed)
            model = {key: body for key, body in (model | added).items() if key not in removed}
            assert what_is_in(tmp_path / "file") == model == dict(opened)
        opened.close()


@pytest.mark.parametrize(
    "change", ["value = x'00'", "value = 7", "key = 'other'", "key = CAST(x'ff' AS TEXT)", "value = value || x'00'"]
)
def test_an_entry_that_the_medium_has_changed_is_known(tmp_path: Path, change: str) -> None:
    opened = Shelf(tmp_path / "file", TABLE)
    opened.change({"corrupt": b"1", "whole": b"2"})
    with sqlite3.connect(tmp_path / "file") as other:
        other.execute(f"UPDATE {TABLE} SET {change} WHERE key = 'corrupt'")
    other.close()
    entries = shelf.read(tmp_path / "file", TABLE, bytes)
    assert sorted(entry.value or b"" for entry in entries) == [b"", b"2"]
    opened.close()


def test_what_the_disk_refuses_is_raised_and_the_next_change_goes(tmp_path: Path) -> None:
    opened = Shelf(tmp_path / "file", TABLE)
    opened.change({"b": b"2"})
    with disk_full(), pytest.raises(sqlite3.Error):
        opened.change({"a": bytes(100_000), "c": b""}, ["b"])
    assert dict(opened) == {"b": b"2"}
    opened.change({"a": b"1"})
    opened.close()
    assert what_is_in(tmp_path / "file") == {"b": b"2", "a": b"1"}


def test_a_file_that_another_process_locks_refuses_a_change_and_takes_the_next(tmp_path: Path) -> None:
    opened = Shelf(tmp_path / "file", TABLE)
    opened.change({"b": b"2"})
    with contextlib.closing(sqlite3.connect(tmp_path / "file", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            opened.change({"a": b"1"}, ["b"])
    opened.change({"c": b"3"})
    opened.close()
    assert what_is_in(tmp_path / "file") == {"b": b"2", "c": b"3"}


def test_a_process_that_is_killed_between_two_changes_leaves_whole_ones(tmp_path: Path) -> None:
    program = (
        "import itertools, sys; from pathlib import Path; from gateway.store.sqlite.shelf import Shelf\n"
        f"opened = Shelf(Path({str(tmp_path / 'file')!r}), {TABLE!r})\n"
        "for number in itertools.count(1):\n"
        "    opened.change({'a': b'%d' % number, 'b': b'%d' % number}, [f'old {number - 1}'])\n"
        "    print(number, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        told = [int(process.stdout.readline()) for _ in range(50)][-1]
        process.kill()
        told = max([told, *map(int, process.stdout.read().split())])
    found = what_is_in(tmp_path / "file")
    assert found["a"] == found["b"]
    assert int(found["a"] or b"") in (told, told + 1)


def test_a_shelf_works_without_a_thread_of_its_own(tmp_path: Path) -> None:
    before = threading.active_count()
    opened = Shelf(tmp_path / "file", TABLE)
    opened.change({"a": b"1"})
    assert threading.active_count() == before
    opened.close()


def test_a_full_disk_that_makes_no_file_is_one_error_without_a_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with disk_full(0), pytest.raises(sqlite3.Error):
        Shelf(tmp_path / "file", TABLE)
    assert capfd.readouterr().err == ""
    Shelf(tmp_path / "file", TABLE).close()
    assert what_is_in(tmp_path / "file") == {}


def test_a_folder_that_is_gone_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="away"):
        Shelf(tmp_path / "away" / "notes.sqlite", "note")


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    Shelf(tmp_path / "file", TABLE).close()
    assert stored(tmp_path, "PRAGMA user_version", "file") == [(shelf.VERSION,)]
    stored(tmp_path, "PRAGMA user_version = 3", "file")
    with pytest.raises(sqlite3.DatabaseError, match="of version 3, and this gateway reads version 2"):
        shelf.read(tmp_path / "file", TABLE, bytes)


def test_notes_of_one_place_are_one_and_a_file_of_them_that_is_damaged_begins_anew(tmp_path: Path) -> None:
    first, again, other = (Note("file", place, reason, "") for place, reason in (("a", "1"), ("a", "2"), ("b", "")))
    set_aside(tmp_path, [first])
    set_aside(tmp_path, [again, other])
    assert notes_in(tmp_path) == [again, other]
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    with pytest.raises(StoreError, match=r"quarantine\.sqlite: file is not a database"):
        notes_in(tmp_path)
    set_aside(tmp_path, [other])
    assert notes_in(tmp_path) == [other]
    (away,) = tmp_path.glob(f"{FILE}.damaged-*Z")
    assert away.read_bytes().startswith(b"no database")
