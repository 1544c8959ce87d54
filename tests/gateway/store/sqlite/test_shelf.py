"""A dictionary on disk beside a dict: what a call said is there, and what the medium has changed is known."""

import random
import sqlite3
from pathlib import Path

import pytest

from gateway.errors import StoreError
from gateway.store import shelf
from gateway.store.sqlite.shelf import Shelf
from gateway.store.tables.quarantine import FILE, Note, notes_in, set_aside
from tests.gateway.store.support import disk_full, stored

TABLE = "thing"


def what_is_in(path: Path) -> dict[str, bytes | None]:
    return {entry.key: entry.body for entry in shelf.read(path, TABLE)}


def test_random_changes_agree_with_a_dict(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "AT_ONCE", 7)
    chance = random.Random(seed)
    keys = [f"{name}{rest}" for name in ("a", "b", "ä/ö") for rest in ("", *(f"\0{number}" for number in range(9)))]
    model: dict[str, bytes] = {}
    for _ in range(3):
        opened = Shelf(tmp_path / "file", TABLE, is_synced=chance.random() < 0.5)
        for _ in range(30):
            some = chance.sample(keys, chance.randrange(len(keys)))
            step = chance.choice(("put", "remove"))
            if step == "put":
                bodies = {key: chance.randbytes(chance.choice((0, 5, 5000))) for key in some}
                opened.put(bodies)
                model |= bodies
            else:
                opened.remove(some)
                model = {key: body for key, body in model.items() if key not in some}
            assert what_is_in(tmp_path / "file") == model
        opened.close()


@pytest.mark.parametrize(
    "change", ["value = x'00'", "value = 7", "key = 'other'", "key = CAST(x'ff' AS TEXT)", "value = value || x'00'"]
)
def test_an_entry_that_the_medium_has_changed_is_known(tmp_path: Path, change: str) -> None:
    opened = Shelf(tmp_path / "file", TABLE)
    opened.put({"corrupt": b"1", "whole": b"2"})
    with sqlite3.connect(tmp_path / "file") as other:
        other.execute(f"UPDATE {TABLE} SET {change} WHERE key = 'corrupt'")
    other.close()
    entries = shelf.read(tmp_path / "file", TABLE)
    assert sorted(entry.body or b"" for entry in entries) == [b"", b"2"]
    opened.close()


def test_what_the_disk_refuses_is_raised_and_the_next_change_goes(tmp_path: Path) -> None:
    opened = Shelf(tmp_path / "file", TABLE)
    with disk_full(), pytest.raises(sqlite3.Error):
        opened.put({"a": bytes(100_000)})
    opened.put({"a": b"1"})
    opened.close()
    assert what_is_in(tmp_path / "file") == {"a": b"1"}


def test_a_full_disk_that_makes_no_file_is_one_error_without_a_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with disk_full(0), pytest.raises(sqlite3.Error):
        Shelf(tmp_path / "file", TABLE)
    assert capfd.readouterr().err == ""
    Shelf(tmp_path / "file", TABLE).close()
    assert what_is_in(tmp_path / "file") == {}


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    Shelf(tmp_path / "file", TABLE).close()
    assert stored(tmp_path, "PRAGMA user_version", "file") == [(shelf.VERSION,)]
    stored(tmp_path, "PRAGMA user_version = 3", "file")
    with pytest.raises(sqlite3.DatabaseError, match="of version 3, and this gateway reads version 2"):
        shelf.read(tmp_path / "file", TABLE)


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
