"""Files that a configuration names."""

import fcntl
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
    assert sorted(one.name for one in tmp_path.iterdir()) == [".lock", "accounts", "other"]


def test_a_file_that_cannot_be_replaced_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "folder" / "full").mkdir(parents=True)
    with pytest.raises(OSError, match="Is a directory"):
        replace_file(tmp_path / "folder", b"new")
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize(("folder_mode", "lock_mode"), [(0o755, 0o600), (0o750, 0o600), (0o775, 0o660)])
def test_a_lock_is_closed_to_users_that_may_only_read_the_folder(
    tmp_path: Path, folder_mode: int, lock_mode: int
) -> None:
    """Anyone may lock a file or a folder that they can open, and could keep others waiting."""
    tmp_path.chmod(folder_mode)
    before = os.umask(0)
    try:
        with locked(tmp_path):
            assert (tmp_path / ".lock").stat().st_mode & 0o777 == lock_mode
            held = os.open(tmp_path, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as another user may do
    finally:
        os.umask(before)
    with locked(tmp_path):
        os.close(held)


def test_a_lock_file_is_no_symbolic_link_that_others_have_put_there(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"), locked(tmp_path):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_in_which_anyone_may_write_gets_no_lock_file(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with locked(tmp_path):
        assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another user")
def test_a_lock_file_that_root_makes_belongs_to_the_folders_owner(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    with locked(tmp_path):
        about = (tmp_path / ".lock").stat()
    assert (about.st_uid, about.st_gid) == (65534, 65534)
