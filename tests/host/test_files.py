"""Files that a configuration names."""

import os
from pathlib import Path

import pytest

from host.errors import ConfigError
from host.files import PASSWORD_BYTES_MAX, read_password, read_secret


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
