"""Files that a configuration names."""

import os
from pathlib import Path

import pytest

from host.errors import ConfigError
from host.files import PASSWORD_BYTES_MAX, locked, read_password, read_secret, replace_file, write_new


def written(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_a_password_of_any_permitted_size_is_read_without_what_an_editor_adds(
    tmp_path: Path, start: bytes, end: bytes
) -> None:
    for password in (b"p", b"p" * PASSWORD_BYTES_MAX):
        assert read_password(written(tmp_path / "password", start + password + end)) == password


@pytest.mark.parametrize("content", [b"", b"\n", b"a\nb", b"a\n\n", b"p" * (PASSWORD_BYTES_MAX + 1)])
def test_what_is_no_password_on_one_line_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ConfigError, match="expected a password on one line") as raised:
        read_password(written(tmp_path / "password", content))
    assert not raised.value.may_pass


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o602])
def test_a_secret_that_others_may_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match="others may read or change it; expected the permissions 0600 or 0640"):
        read_secret(written(tmp_path / "secret", b"s", mode))


def test_a_fifo_is_refused_at_once_and_a_file_that_is_away_may_come(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ConfigError, match="expected a regular file"):
        read_secret(tmp_path / "fifo")
    with pytest.raises(ConfigError, match="No such file") as raised:
        read_secret(tmp_path / "away")
    assert raised.value.may_pass


def test_a_new_file_is_a_secret_from_its_first_byte_on(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_new(tmp_path / "secret", b"s")
        write_new(tmp_path / "public", b"p", 0o644)
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("secret", "public")] == [0o600, 0o644]
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "secret", b"t")
    assert (tmp_path / "secret").read_bytes() == b"s"


def test_a_file_is_replaced_with_its_permissions_also_after_a_kill(tmp_path: Path) -> None:
    path = written(tmp_path / "accounts", b"old", 0o640)
    written(tmp_path / ".accounts.new", b"half", 0o644)  # what a process that was killed has left
    with locked(tmp_path):
        replace_file(path, b"new")
        replace_file(tmp_path / "other", b"first", 0o644)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o640)
    assert (tmp_path / "other").stat().st_mode & 0o777 == 0o644
    assert sorted(one.name for one in tmp_path.iterdir()) == ["accounts", "other"]


def test_a_file_that_cannot_be_replaced_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "folder" / "full").mkdir(parents=True)
    with pytest.raises(OSError, match="Is a directory"):
        replace_file(tmp_path / "folder", b"new")
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]
