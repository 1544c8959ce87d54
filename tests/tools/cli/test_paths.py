from pathlib import Path

import pytest

from tools.cli.paths import cache_directory, source_root, state_directory


def test_state_and_cache_follow_the_base_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert state_directory() == Path("/var/state/holdfast")
    assert cache_directory() == Path("/var/cache/holdfast")


@pytest.mark.parametrize("value", [None, "", "relative"])
def test_an_unset_empty_or_relative_base_directory_means_the_home_folder(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.setenv("HOME", "/var/user")
    for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
        if value is not None:
            monkeypatch.setenv(variable, value)
    assert state_directory() == Path("/var/user/.local/state/holdfast")
    assert cache_directory() == Path("/var/user/.cache/holdfast")


def test_source_root_holds_our_packages() -> None:
    assert (source_root() / "tools/cli/paths.py").exists()
