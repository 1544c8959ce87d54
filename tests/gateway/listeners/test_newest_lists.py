"""A gateway keeps over its restarts which revocation list of an authority is the newest that it has used."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.listeners.newest_lists import NewestLists
from host.der import RevocationList
from host.errors import ConfigError


def revoking(number: int | None, *serials: int, issuer: bytes = b"hill") -> RevocationList:
    return RevocationList(issuer, b"", frozenset(serials), datetime(2026, 1, 1, tzinfo=UTC), None, number)


def test_an_older_list_is_refused_after_a_restart_and_the_way_on_is_named(tmp_path: Path) -> None:
    NewestLists(tmp_path).note([revoking(7, 1, 2)])
    after = NewestLists(tmp_path)
    after.check("revoked.pem", [revoking(7, 2, 1)])
    after.check("revoked.pem", [revoking(8, 1, 2, 3)])
    with pytest.raises(ConfigError, match=r"revoked.pem: .* number 6, .* number 7: an older list .* delete .*\.json"):
        after.check("revoked.pem", [revoking(6, 1)])
    after.file.unlink()
    after.check("revoked.pem", [revoking(6, 1)])


def test_another_list_of_the_same_number_is_refused(tmp_path: Path) -> None:
    NewestLists(tmp_path).note([revoking(7, 1)])
    with pytest.raises(ConfigError, match="another list of the same number"):
        NewestLists(tmp_path).check("revoked.pem", [revoking(7, 2)])


def test_each_authority_has_numbers_of_its_own_and_lists_without_one_are_taken(tmp_path: Path) -> None:
    newest = NewestLists(tmp_path)
    newest.note([revoking(7, 1), revoking(3, 1, issuer=b"dale"), revoking(None, 5, issuer=b"moor")])
    newest.note([revoking(8, 1)])  # the other authority's files are not in use now
    newest.check("revoked.pem", [revoking(4, 1, issuer=b"dale"), revoking(None, issuer=b"moor")])
    with pytest.raises(ConfigError):
        newest.check("revoked.pem", [revoking(2, 1, issuer=b"dale")])
    newest.check("revoked.pem", [revoking(1), revoking(1, 2)])  # two of one issuer may be for a part each


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    newest = NewestLists(tmp_path)
    newest.file.write_text("{")
    with pytest.raises(ConfigError, match=r"revocation-lists\.json: damaged"):
        newest.check("revoked.pem", [revoking(1)])


def test_what_cannot_be_written_keeps_no_gateway_from_serving(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    NewestLists(tmp_path / "gone").note([revoking(1)])
    assert "was not kept" in caplog.text


def test_a_file_of_another_user_is_not_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = NewestLists(tmp_path)
    newest.note([revoking(7)])

    def refuse(*_: object, **__: object) -> os.stat_result:
        raise PermissionError

    monkeypatch.setattr(os, "stat", refuse)
    newest.check("revoked.pem", [revoking(1)])
