"""A site on a full disk: the command says so, leaves nothing half written, and with room again ends well."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from host.files import LOCK_FILE
from tests.support.full_disk import FullDisk

HOLDFAST = (sys.executable, "-m", "tools.cli.main", "site")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FullDisk]:
    disk = FullDisk(tmp_path / "disk")
    yield disk
    disk.close()


def hidden(disk: FullDisk) -> set[str]:
    """The files that are being made."""
    within = {path for path in disk.files() if "/." in path.removeprefix(str(disk.path))}
    return {path for path in within if not path.endswith(LOCK_FILE)}


@pytest.mark.parametrize("left", [8192, *(pytest.param(one, marks=pytest.mark.long) for one in (0, 40960, 69632))])
def test_a_full_disk_is_named_and_with_room_again_the_command_ends_well(disk: FullDisk, left: int) -> None:
    site = f"--site={disk.path}/site"
    if left < 40960:
        disk.fill(but=left)
        done = disk.run(*HOLDFAST, "init", site)
        assert done.returncode == 2 and ("the disk is full" in done.stderr or "No space left" in done.stderr)
        assert not any("site" in path for path in disk.files())
        disk.run("rm", f"{disk.path}/others")
    assert disk.run(*HOLDFAST, "init", site).returncode == 0
    disk.fill(but=left)
    names = [f"device-{number}" for number in range(12)]
    done = disk.run(*HOLDFAST, "device", *names, site)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "the disk is full" in done.stderr or "No space left" in done.stderr
    assert hidden(disk) == set()
    disk.run("rm", f"{disk.path}/others")
    done = disk.run(*HOLDFAST, "device", *names, site)
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 13)
    disk.fill()
    done = disk.run(*HOLDFAST, "revoke", *names[:6], site)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    disk.run("rm", f"{disk.path}/others")
    assert disk.run(*HOLDFAST, "revoke", *names[:6], site).returncode == 0
    listed = disk.run(*HOLDFAST, "list", site)
    assert (listed.stderr, listed.stdout.count(" revoked "), listed.stdout.count(" given ")) == ("", 6, 7)
