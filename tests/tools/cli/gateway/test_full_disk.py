"""Commands that open a store on a full disk say what is full, and where; with room again, everything is there.

The disk is a small one in memory, mounted in a namespace of the test's own.
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.message import Message
from tests.gateway.store.support import messages_in, opened
from tests.support.full_disk import FullDisk
from tools.lab.testing.process import Process
from uplink.carry.backlog_file import BacklogWriter, Header

CONFIG = """name = "gw"
[store]
path = "{folder}"
volatile = true
"""
COMMANDS = {
    "run": ["{config}"],
    "repair": ["{config}"],
    "new-epoch": ["{config}"],
    "backup": ["{disk}/copy", "--config", "{config}"],
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FullDisk]:
    disk = FullDisk(tmp_path / "disk")
    yield disk
    disk.close()


def write_store(folder: Path) -> None:
    """Makes a store with three messages, and ends it as a gateway does."""

    async def write() -> None:
        async with opened(folder) as log:
            await log.submit([Message("plant/a", b"%d" % number, 1) for number in range(3)])

    asyncio.run(write())


def write_large_store(folder: Path) -> None:
    async def write() -> None:
        async with opened(folder) as log:
            for _ in range(30):
                await log.submit([Message("plant/a", bytes(100_000), 1)])

    asyncio.run(write())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_which_disk_is_full_and_loses_nothing(disk: FullDisk, tmp_path: Path, command: str) -> None:
    folder, config = disk.path / "store", tmp_path / "gateway.toml"
    config.write_text(CONFIG.format(folder=folder))
    write_store(tmp_path / "made")
    disk.copy(tmp_path / "made", folder)
    disk.fill()
    arguments = [one.format(config=config, disk=disk.path) for one in COMMANDS[command]]
    done = disk.run(sys.executable, "-m", "tools.cli.main", "gateway", command, *arguments)
    assert done.returncode == (1 if command == "run" else 2), done.stderr
    last = done.stderr.splitlines()[-1]
    assert "the disk is full, 0 of its 24 MB are left: other files have" in last
    assert f"free some of {disk.path}," in last
    disk.run("rm", f"{disk.path}/others")
    disk.copy(folder, tmp_path / "left")
    assert [message.payload for _, message in messages_in(tmp_path / "left")] == [b"0", b"1", b"2"]


def test_what_a_full_disk_has_stopped_leaves_no_file_behind(disk: FullDisk, tmp_path: Path) -> None:
    """The room that is left is the gateway's own. With room again, each command does its work."""
    folder, config, copy = disk.path / "store", tmp_path / "gateway.toml", tmp_path / "copy"
    config.write_text(CONFIG.format(folder=folder))
    new = tmp_path / "new.toml"
    new.write_text(CONFIG.format(folder=disk.path / "moved"))
    write_large_store(tmp_path / "made")
    disk.copy(tmp_path / "made", folder)
    commands = {
        "backup": [f"{disk.path}/copy", "--config", str(config)],
        "restore": [str(copy), "--config", str(config)],
        "migrate": [str(config), str(new)],
    }
    holdfast = [sys.executable, "-m", "tools.cli.main", "gateway"]
    assert disk.run(*holdfast, "backup", str(copy), "--config", str(config)).returncode == 0
    disk.fill(but=1_000_000)
    disk.run("mkdir", str(disk.path / "moved"))
    for command, arguments in commands.items():
        before = disk.files()
        done = disk.run(*holdfast, command, *arguments)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert f"free some of {disk.path}," in done.stderr
        assert [one for one in disk.files() - before if not one.endswith(("/coming", "/lock", "-shm", "-wal"))] == []
    disk.run("rm", f"{disk.path}/others")
    for command, arguments in commands.items():
        done = disk.run(*holdfast, command, *arguments)
        assert done.returncode == 0, done.stderr


def test_an_import_says_that_the_disk_of_the_store_is_full_and_goes_on_later(disk: FullDisk, tmp_path: Path) -> None:
    config, backlog = tmp_path / "gateway.toml", tmp_path / "backlog"
    config.write_text(CONFIG.format(folder=disk.path / "store"))
    BacklogWriter(backlog, Header("1", "gw", "central", 1)).finish()
    holdfast = [sys.executable, "-m", "tools.cli.main"]
    gateway = Process("gateway", disk.inside(*holdfast, "gateway", "run", str(config)))
    gateway.start()
    try:
        gateway.says("event=ready")
        disk.fill()
        done = disk.run(*holdfast, "uplink", "import", str(backlog), "--config", str(config))
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert f"free some of {disk.path}," in done.stderr
        disk.run("rm", f"{disk.path}/others")
        done = disk.run(*holdfast, "uplink", "import", str(backlog), "--config", str(config))
        assert done.returncode == 0, done.stderr
    finally:
        gateway.stop()
