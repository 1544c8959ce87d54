"""A store that was copied, restored or moved: no identity is given twice, and what was in it is there."""

import ctypes
import errno
import fcntl
import shutil
from pathlib import Path

import pytest

from gateway.errors import StoreError
from gateway.message import Message
from gateway.store import MESSAGES, Cursor, MessageLog, qos2
from gateway.store.repair import backup, begin_epoch, repair, restore
from tests.gateway.store.support import epoch_of, messages_in, opened, stored
from tests.gateway.store.test_compaction import some_run
from wire.codec.packets import MQTT_3_1_1

CONSUMER = "route/central"
SEQ_MAX = 2**63 - 1


async def store(log: MessageLog, *payloads: bytes) -> None:
    """A message alone and some as they came from one client: they have their identities in different ways."""
    for payload in payloads:
        await log.submit([Message("a", payload)])
        await log.submit([some_run(["a"], [payload], MQTT_3_1_1)])


async def fill(folder: Path) -> None:
    async with opened(folder) as log:
        Cursor(log, CONSUMER, ["#"]).close()
        await store(log, b"1", b"2")


def identities_in(folder: Path) -> list[tuple[str, int, int]]:
    return [(message.origin, message.epoch, message.seq) for _, message in messages_in(folder)]


def unknown_of(folder: Path) -> list[tuple[int, int, int]]:
    return stored(folder, "SELECT epoch, first, last FROM dropped WHERE reason = 'damaged'")


async def test_a_backup_of_a_running_gateway_is_restored_and_gives_no_identity_twice(tmp_path: Path) -> None:
    folder, copy = tmp_path / "store", tmp_path / "copy"
    async with opened(folder) as log:
        Cursor(log, CONSUMER, ["#"]).close()
        await store(log, b"1", b"2")
        await log.submit([qos2.note_incoming("client", [7])])
        backup(folder, copy)
        await store(log, b"after the backup")
        epoch = epoch_of(folder)
    given = identities_in(folder)
    kept = restore(folder, copy, "gw")
    assert identities_in(kept) == given
    async with opened(folder) as log:
        assert log.found.incoming == {}  # a client's new message with this identifier is none that comes again
        await store(log, b"new")
    found = identities_in(folder)
    assert found[:4] == given[:4]
    assert len(found) == 6 and set(found[4:]).isdisjoint(given)
    assert unknown_of(folder) == [(epoch, 5, SEQ_MAX)]
    assert repair(folder, "gw", []).damage == []


async def test_a_backup_goes_into_an_empty_folder_and_back_again_as_often_as_one_likes(tmp_path: Path) -> None:
    await fill(tmp_path / "store")
    backup(tmp_path / "store", tmp_path / "copy")
    given: set[tuple[str, int, int]] = set()
    for number in range(3):
        restore(tmp_path / "new", tmp_path / "copy", "gw")
        async with opened(tmp_path / "new") as log:
            await store(log, b"%d" % number)
        new = set(identities_in(tmp_path / "new")[4:])
        assert len(new) == 2 and new.isdisjoint(given)
        given |= new


@pytest.mark.parametrize("is_corrupt", [False, True], ids=["whole", "corrupt"])
async def test_each_restore_of_a_backup_tells_of_the_epochs_that_it_replaces(tmp_path: Path, is_corrupt: bool) -> None:
    folder, copy = tmp_path / "store", tmp_path / "copy"
    await fill(folder)
    backup(folder, copy)
    epochs = []
    for number in range(3):
        async with opened(folder) as log:
            await store(log, b"%d" % number)
            epochs.append(epoch_of(folder))
        if is_corrupt and number == 2:
            (folder / MESSAGES).write_bytes(b"no database")
        restore(folder, copy, "gw")
        restore(folder, copy, "gw")  # no gateway ran on it: nothing more is to be told
    async with opened(folder) as log:
        assert epoch_of(folder) not in epochs
    told = unknown_of(folder)
    assert (epochs[0], 5, SEQ_MAX) in told and (epochs[2], 1, SEQ_MAX) in told
    assert is_corrupt or (epochs[1], 1, SEQ_MAX) in told
    assert len(told) == (2 if is_corrupt else 3)


async def test_a_folder_that_was_copied_begins_a_new_epoch_and_the_original_goes_on(tmp_path: Path) -> None:
    await fill(tmp_path / "store")
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    for folder in (tmp_path / "store", tmp_path / "copy"):
        async with opened(folder) as log:
            await store(log, b"3")
    original, copied = identities_in(tmp_path / "store"), identities_in(tmp_path / "copy")
    assert original[:4] == copied[:4]
    assert {epoch for _, epoch, _ in original} == {original[0][1]}
    assert set(original[4:]).isdisjoint(copied[4:])
    assert unknown_of(tmp_path / "store") == []


async def test_a_folder_that_was_moved_goes_on(tmp_path: Path) -> None:
    await fill(tmp_path / "store")
    (tmp_path / "store").rename(tmp_path / "moved")
    async with opened(tmp_path / "moved") as log:
        await store(log, b"3")
    assert len({epoch for _, epoch, _ in identities_in(tmp_path / "moved")}) == 1


def put_back(copy: Path, folder: Path) -> None:
    """Deletes a store and puts its copy in its place, whose database gets the inode number of the deleted one."""
    number = (folder / MESSAGES).stat().st_ino
    shutil.rmtree(folder)
    folder.mkdir()
    for attempt in range(2000):
        file = folder / f"{attempt}"
        file.touch()
        if file.stat().st_ino == number:
            break
    else:
        pytest.skip("this file system does not give an inode number again so soon")
    shutil.copytree(copy, folder, copy_function=shutil.copyfile, dirs_exist_ok=True)
    file.write_bytes((copy / MESSAGES).read_bytes())
    file.rename(folder / MESSAGES)
    for file in folder.glob("[0-9]*"):
        file.unlink()


def tell_no_generation(*_: object) -> bytes:
    raise OSError(errno.ENOTTY, "as overlayfs answers")


@pytest.mark.parametrize("kind", ["all is told", "no generation is told", "no birth is told"])
async def test_a_copy_that_gets_the_inode_number_of_the_deleted_store_begins_a_new_epoch(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "no generation is told":
        monkeypatch.setattr(fcntl, "ioctl", tell_no_generation)
    elif kind == "no birth is told":
        monkeypatch.setattr(ctypes, "CDLL", lambda _: None)  # a library without statx
    folder, copy = tmp_path / "store", tmp_path / "copy"
    await fill(folder)
    shutil.copytree(folder, copy)
    async with opened(folder) as log:
        await store(log, b"after the copy")
    given = identities_in(folder)
    put_back(copy, folder)
    async with opened(folder) as log:
        await store(log, b"new")
    found = identities_in(folder)
    assert found[:4] == given[:4]
    assert len(found) == 6 and set(found[4:]).isdisjoint(given)


async def test_a_store_that_came_back_in_its_place_begins_a_new_epoch_on_demand(tmp_path: Path) -> None:
    await fill(tmp_path)
    begin_epoch(tmp_path)
    async with opened(tmp_path) as log:
        await store(log, b"3")
    found = identities_in(tmp_path)
    assert found[3][1] != found[4][1] == found[5][1]


async def test_what_cannot_be_copied_or_restored_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    folder, copy = tmp_path / "store", tmp_path / "copy"
    with pytest.raises(StoreError, match="is not there"):
        backup(folder, copy)
    await fill(folder)
    backup(folder, copy)
    with pytest.raises(StoreError, match="there is a file already"):
        backup(folder, copy)
    before = messages_in(folder)
    (tmp_path / "other").write_bytes(b"no database at all, but long enough to look" * 100)
    for source, what in ((tmp_path / "other", "it is no backup"), (tmp_path / "missing", "missing: No such file")):
        with pytest.raises(StoreError, match=what):
            restore(folder, source, "gw")
    async with opened(folder):
        for refused in (lambda: restore(folder, copy, "gw"), lambda: begin_epoch(folder)):
            with pytest.raises(StoreError, match="another process uses it"):
                refused()
    with pytest.raises(StoreError, match="there is none"):
        begin_epoch(tmp_path / "nowhere")
    assert messages_in(folder) == before
