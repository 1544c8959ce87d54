"""Warnings about files that other users can read."""

import grp
import os
from pathlib import Path

import pytest

from tools.cli.gateway.exposure import exposed_files


@pytest.mark.parametrize("has_name", [True, False])
def test_the_command_against_an_open_file_names_the_group_or_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_name: bool
) -> None:
    known = {entry.gr_gid: entry.gr_name for entry in grp.getgrall()}
    others = set(known) - {os.getegid(), *os.getgroups()}
    group = next(iter(others)) if has_name else next(number for number in range(50_000, 60_000) if number not in known)
    secret = tmp_path / "password"
    secret.touch(0o644)
    secret.chmod(0o644)
    monkeypatch.setattr(os, "geteuid", lambda: 50_000)  # as a process of another user and group sees the file
    monkeypatch.setattr(os, "getegid", lambda: group)
    monkeypatch.setattr(os, "getgroups", list)
    assert list(exposed_files([str(secret)])) == [
        f"{secret}: other users can read or change it: chgrp {known.get(group, group)} {secret} && chmod 640 {secret}"
    ]
