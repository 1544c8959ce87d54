"""A migration: stores go to other folders, all of them or none, and nothing in them changes."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.errors import StoreError
from gateway.store import MESSAGES, MessageLog, UnseenDrops
from gateway.store.repair import Migrated, Move, backup, migrate
from gateway.store.sqlite.folder import COMING, take_folder
from tests.gateway.store.support import epoch_of, messages_in, stored
from tests.gateway.support import Client, running, tcp_port
from tests.house.repository import ROOT

NAMES = ("default", "plant")
EVERY = 4  # steps: the random seed says at which of them the first process is killed


def moves(folder: Path) -> list[Move]:
    return [Move(name, folder / "old" / name, folder / "new" / name) for name in NAMES]


async def fill(folder: Path) -> None:
    """Makes a store with a session for which messages wait, one of them in flight at QoS 2, and a retained one."""
    async with running(folder) as broker:
        client = await Client("reader", session_expiry_s=600).connect(tcp_port(broker))
        await client.subscribe("a/#", options=2)
        publisher = await Client("publisher").connect(tcp_port(broker))
        await publisher.publish("a/kept", b"retained", retain=True)
        for number in range(20):
            await publisher.publish("a/1", b"%d" % number)
        client.cut()


async def check_goes_on(folder: Path, epoch: int) -> None:
    """Fails unless a gateway goes on with a store where `fill` has left it, with its epoch and its numbers."""
    async with running(folder) as broker:
        client = await Client("reader", clean_start=False, session_expiry_s=600).connect(tcp_port(broker))
        assert client.connack.session_present
        publisher = await Client("publisher").connect(tcp_port(broker))
        await publisher.publish("a/1", b"new")
        payloads: list[bytes] = []
        while not payloads or payloads[-1] != b"new":
            payloads.append((await client.receive()).payload)
        assert payloads[-21:] == [b"%d" % number for number in range(20)] + [b"new"]
        late = await Client("late").connect(tcp_port(broker))
        await late.subscribe("a/kept")
        assert (await late.receive()).payload == b"retained"
    assert epoch_of(folder) == epoch


def is_usable(folder: Path) -> bool:
    """Whether a gateway could use a store."""
    try:
        take_folder(folder).close()
    except StoreError:
        return False
    return (folder / MESSAGES).exists()


async def test_gateways_go_on_in_other_folders_where_they_were(tmp_path: Path) -> None:
    for move in moves(tmp_path):
        await fill(move.old)
    epochs = [epoch_of(move.old) for move in moves(tmp_path)]
    found = migrate(moves(tmp_path))
    assert found._replace(rows=0) == Migrated(2, 0, messages=42, sessions=4, retained=2, places=4)
    for move, epoch in zip(moves(tmp_path), epochs, strict=True):
        assert messages_in(move.new) == messages_in(move.old)
        with pytest.raises(StoreError, match="and goes on there"):
            await MessageLog.open(move.old, origin="test-gateway")
        await check_goes_on(move.new, epoch)
    with pytest.raises(StoreError, match="already"):
        migrate(moves(tmp_path))


async def test_what_no_operator_has_seen_of_drops_moves_with_its_store(tmp_path: Path) -> None:
    default, plant = moves(tmp_path)
    for move in (default, plant):
        await fill(move.old)
    UnseenDrops(plant.old).note()
    migrate([default, plant])
    assert UnseenDrops(plant.new).since == UnseenDrops(plant.old).since != ""
    assert not UnseenDrops(default.new).since


async def test_what_cannot_be_moved_is_named_and_stays_usable(tmp_path: Path) -> None:
    first, second = moves(tmp_path)
    await fill(first.old)
    with pytest.raises(StoreError, match=f"{second.old}: there is none"):
        migrate([first, second])
    await fill(second.old)
    async with running(second.old):
        with pytest.raises(StoreError, match=f"{second.old}: another process uses it"):
            migrate([first, second])
    await fill(second.new)
    with pytest.raises(StoreError, match=f"{second.new}: there is a store already"):
        migrate([first, second])
    assert is_usable(first.old) and is_usable(second.old)
    shutil.rmtree(second.new)
    assert migrate([first, second]).stores == 2
    back = Move(first.stream, first.new, first.old)
    with pytest.raises(StoreError, match=f"{first.old}: its store was moved to {first.new}: delete the folder"):
        migrate([back])
    with pytest.raises(StoreError, match=f"{first.old}: it was moved to {first.new}"):
        backup(first.old, tmp_path / "backup")
    shutil.rmtree(first.old)
    shutil.rmtree(second.old)
    undone = [Move(move.stream, move.new, move.old) for move in (first, second)]
    assert migrate(undone).stores == 2
    assert is_usable(first.old) and not is_usable(first.new)
    shutil.rmtree(first.new)
    shutil.rmtree(second.new)
    assert migrate([first, second]).stores == 2
    (first.new / COMING).write_text(str(first.old))
    with pytest.raises(StoreError, match=f"{first.new}: it has not come there as a whole"):
        migrate([first._replace(old=first.new, new=tmp_path / "third")])
    (first.new / COMING).unlink()
    elsewhere = second._replace(new=tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=f"{second.old}: it was moved to {second.new}"):
        migrate([first, elsewhere])


async def test_a_migration_that_is_killed_at_any_step_goes_on_and_never_are_both_sets_usable(
    tmp_path: Path, seed: int
) -> None:
    made = tmp_path / "made"
    for move in moves(made):
        await fill(move.old)
    expected = {move.stream: messages_in(move.old) for move in moves(made)}
    sessions = {move.stream: stored(move.old, "SELECT * FROM session") for move in moves(made)}
    steps = 0
    for step in range(1 + seed % EVERY, 1000, EVERY):
        folder = tmp_path / str(step)
        shutil.copytree(made, folder)
        done = migrate_in_a_process(folder, step)
        if done.returncode == 0:
            steps = int(done.stdout)
        else:
            assert done.returncode == -signal.SIGKILL, done.stderr
            has_moved = all(is_usable(move.new) for move in moves(folder))
            assert not (has_moved and any(is_usable(move.old) for move in moves(folder)))
            if not has_moved:
                assert migrate(moves(folder)).stores == 2
        for move in moves(folder):
            assert is_usable(move.new) and not is_usable(move.old)
            assert messages_in(move.new) == expected[move.stream]
            assert stored(move.new, "SELECT * FROM session") == sessions[move.stream]
        shutil.rmtree(folder)
        if steps:
            break
    assert steps > 20


def migrate_in_a_process(folder: Path, step: int) -> subprocess.CompletedProcess[str]:
    folders = [str(one) for move in moves(folder) for one in move[1:]]
    command = [sys.executable, "-m", "tests.gateway.store.repair.migration_killed", str(step), *folders]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
