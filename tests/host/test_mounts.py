"""What is written at a mount point before its disk is mounted is hidden afterwards: nothing is written there."""

import os
from pathlib import Path

import pytest

from cloud.landing.folder import LandingFolder
from gateway.errors import StoreError
from gateway.store.sqlite.folder import take_folder
from host import mounts
from host.errors import ConfigError
from host.mounts import why_not_mounted, why_volatile
from tools.cli.gateway.config import read_configuration

TABLE = """\
# /etc/fstab: what the machine mounts
UUID=1 / ext4 defaults 0 1
UUID=2 none swap sw 0 0
LABEL=ssd {disk} ext4 nofail 0 2
LABEL=usb\t{disk}\\040two\text4\tnoauto
"""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mount point at which nothing is mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    for name in ("FSTAB", "MOUNTED"):
        monkeypatch.setattr(mounts, name, tmp_path / name)
    (tmp_path / "FSTAB").write_text(TABLE.format(disk=disk))
    (tmp_path / "MOUNTED").write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    return disk


def mount(disk: Path) -> None:
    with (disk.parent / "MOUNTED").open("a") as file:
        file.write(f"23 22 8:2 / {str(disk).replace(' ', chr(92) + '040')} rw - ext4 /dev/sdb1 rw\n")


def test_a_folder_below_a_mount_point_of_fstab_has_to_be_mounted(disk: Path) -> None:
    two = disk.with_name("disk two")
    for folder, point in ((disk / "holdfast/store", disk), (two, two)):
        why = why_not_mounted(folder)
        assert why is not None and why.filename == str(point) and "it is not mounted" in str(why)
        mount(point)
        assert why_not_mounted(folder) is None


def test_other_folders_need_no_mount(disk: Path, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "diskette", Path("/")):
        assert why_not_mounted(folder) is None
    (tmp_path / "FSTAB").unlink()
    assert why_not_mounted(disk) is None


def test_a_link_to_a_folder_is_followed(disk: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(disk / "store")
    assert why_not_mounted(tmp_path / "link") is not None


def test_no_store_is_begun_below_a_disk_that_is_not_mounted(disk: Path) -> None:
    with pytest.raises(StoreError, match="it is not mounted"):
        take_folder(disk / "store")
    assert list(disk.iterdir()) == []


def test_a_configuration_says_that_the_disk_of_its_store_is_not_mounted_and_may_be_soon(disk: Path) -> None:
    path = disk.parent / "gateway.toml"
    path.write_text(f'name = "garage"\n[store]\npath = "{disk}/store"\n[[listener]]\nkind = "tcp"\n')
    with pytest.raises(ConfigError, match=f"store.path: {disk}: .*it is not mounted") as raised:
        read_configuration(path)
    assert raised.value.may_pass


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("tmpfs", "tmpfs: it is in memory, "),
        ("ramfs", "ramfs: it is in memory, "),
        ("overlay", "overlay: what is written there goes with the container, "),
        ("ext4", None),
        ("9p", None),
    ],
)
def test_a_file_system_that_loses_what_is_written_is_known_by_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, why: str | None
) -> None:
    device = os.stat(tmp_path).st_dev
    table = tmp_path / "MOUNTED"
    table.write_text(f"22 1 {os.major(device)}:{os.minor(device)} / / rw shared:1 - {kind} none rw\n")
    monkeypatch.setattr(mounts, "MOUNTED", table)
    found = why_volatile(tmp_path / "absent/store")
    assert (found and found.startswith(why or "-")) if why else found is None


def test_no_lander_lands_below_a_disk_that_is_not_mounted(disk: Path) -> None:
    with pytest.raises(OSError, match="it is not mounted"):
        LandingFolder(disk / "landing", "lander", 1)
    assert list(disk.iterdir()) == []
