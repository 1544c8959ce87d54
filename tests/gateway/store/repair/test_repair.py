"""A damaged store beside what was in it: what lies in whole pages is there after a repair, and nothing else."""

import contextlib
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.errors import StoreError
from gateway.message import Message
from gateway.store import MESSAGES, Cursor, MessageLog, connectors, qos2, quarantine
from gateway.store.repair import repair
from gateway.store.repair.pages import Pages
from gateway.store.repair.records import below, records
from gateway.store.sqlite.wal import PAGE_SIZE
from gateway.store.tables import routes
from gateway.store.tables.retained import Keep
from tests.gateway.store.corruption import Corrupt, corrupt_beginning, corrupt_pages, fill, flip, noise, rows_in, zero
from tests.gateway.store.support import (
    append_all,
    append_each,
    leave_as_killed,
    messages_in,
    numbered,
    opened,
    stored,
    take_all,
)
from tests.gateway.store.test_upgrade import store_of_release
from tests.gateway.support import ROOT


def pages_of_messages(path: Path) -> dict[int, set[int]]:
    """The pages in which each row of the log lies, by its last position; every row is one message here."""
    pages = Pages(path)
    found: dict[int, set[int]] = {}
    for number in sorted({*range(1, pages.count + 1)} - pages.free()):
        page_of: set[int] = set()
        for record in records(pages, number, page_of):
            assert record is not None
            if record.rowid is not None and len(record.values) == 6 and record.values[0] is None:
                found[record.rowid] = {*page_of, number}
            page_of.clear()
    return found


def lost_identities(folder: Path) -> list[tuple[int, int]]:
    return stored(folder, "SELECT first, last FROM dropped WHERE reason = 'damaged' AND origin = 'gw'")


@pytest.mark.parametrize("how", [zero, noise, flip])
async def test_what_is_in_whole_pages_is_kept_and_nothing_is_invented(tmp_path: Path, seed: int, how: Corrupt) -> None:
    rng = random.Random(seed)
    whole = tmp_path / "whole"
    await fill(whole, rng)
    model, rows = dict(messages_in(whole)), rows_in(whole)
    lying_in = pages_of_messages(whole / MESSAGES)
    count = (whole / MESSAGES).stat().st_size // PAGE_SIZE
    assert lying_in.keys() == model.keys()
    for attempt in range(8):
        folder = tmp_path / str(attempt)
        shutil.copytree(whole, folder)
        numbers = rng.sample(range(2, count + 1), rng.choice((1, 2, 10)))
        corrupt_pages(folder / MESSAGES, numbers, rng, how)
        report = repair(folder, "gw", ["route/central"])
        kept = dict(messages_in(folder))
        assert kept.items() <= model.items(), "something is invented"
        safe = {position for position, pages in lying_in.items() if pages.isdisjoint(numbers)}
        if how is not flip:  # which may change what nothing protects
            assert safe <= kept.keys()
            for table, before in rows.items():
                now = rows_in(folder)[table]
                assert table in ("dropped", "cursor") or now <= before, table
            assert stored(folder, "SELECT consumer FROM cursor WHERE consumer = 'route/central'")
        if report.damage:
            ranges = lost_identities(folder)
            for position in model.keys() - kept.keys():
                seq = model[position].seq
                assert model[position].origin != "gw" or any(first <= seq <= last for first, last in ranges), position
            known, gone = sum(one.messages for one in report.lost), len(model.keys() - kept.keys())
            assert known == gone or (known <= gone and max(model) not in kept)  # the last ones leave no trace
        else:
            assert how is flip and kept == model
        assert stored(folder, "PRAGMA integrity_check") == [("ok",)]
        assert repair(folder, "gw", []).damage == []


async def test_a_store_without_its_header_is_repaired_with_all_that_was_in_it(tmp_path: Path, seed: int) -> None:
    await fill(tmp_path, random.Random(seed))
    model, rows = messages_in(tmp_path), rows_in(tmp_path)
    corrupt_pages(tmp_path / MESSAGES, [1], random.Random(seed), zero)
    report = repair(tmp_path, "gw", [])
    assert messages_in(tmp_path) == model
    after = rows_in(tmp_path)
    for table in ("dropped", "cursor"):  # a consumer without a place gets one
        assert after.pop(table) >= rows.pop(table)
    assert after == rows
    assert report.sessions_lost == []
    assert [lost.messages for lost in report.lost] == [0]
    assert report.old is not None and (Path(report.old) / MESSAGES).exists()


async def test_a_message_that_a_route_has_set_aside_is_set_aside_after_a_repair(tmp_path: Path, seed: int) -> None:
    async with opened(tmp_path) as log:
        Cursor(log, "route/central", ["#"])
        await append_each(log, numbered(9))
        log.refused.add("route/central", 5, "not authorized", "")
    rows = stored(tmp_path, "SELECT * FROM refused")
    corrupt_pages(tmp_path / MESSAGES, [1], random.Random(seed), zero)
    assert repair(tmp_path, "gw", []).kept["refused"] == 1
    assert stored(tmp_path, "SELECT * FROM refused") == rows


async def test_a_command_behind_the_newest_message_that_is_left_is_taken_for_an_answered_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        Cursor(log, "connector/hall", ["commands/#"])
        await append_each(log, numbered(3))
        await log.submit([connectors.save_taken("connector/hall", connectors.TakenCommand(7, is_answered=False))])
    corrupt_pages(tmp_path / MESSAGES, [1], random.Random(1), zero)
    repair(tmp_path, "gw", ["connector/hall"])
    async with opened(tmp_path) as log:
        assert log.found.taken_commands == {"connector/hall": connectors.TakenCommand(3, is_answered=True)}


async def test_what_was_not_handed_on_behind_the_newest_message_that_is_left_says_nothing_of_what_comes_there(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as log:
        Cursor(log, "route/central", ["#"])
        await append_each(log, numbered(3))
        await log.submit([routes.save_unsent("route/central", [(0, 0b11111100), (2, 1)])])
    corrupt_pages(tmp_path / MESSAGES, [1], random.Random(1), zero)
    repair(tmp_path, "gw", ["route/central"])
    async with opened(tmp_path) as log:
        assert log.found.unsent["route/central"] == {0: 0b1100, 2: 0}


@pytest.mark.parametrize("table", ["seen_digest", "released", "read_to", "taken_command", "unsent"])
async def test_a_store_without_the_tables_that_a_start_would_add_is_whole(
    tmp_path: Path, seed: int, table: str
) -> None:
    await fill(tmp_path, random.Random(seed))
    with contextlib.closing(sqlite3.connect(tmp_path / MESSAGES, isolation_level=None)) as connection:
        connection.execute(f"DROP TABLE {table}")
    assert repair(tmp_path, "gw", ["route/central"]).damage == []
    with contextlib.closing(sqlite3.connect(tmp_path / MESSAGES, isolation_level=None)) as connection:
        connection.execute("DROP TABLE retained")
    assert repair(tmp_path, "gw", ["route/central"]).damage == ["messages.sqlite: table retained is missing"]


def test_a_store_of_the_first_release_is_checked_by_its_own_tables_and_stays_as_it_is(tmp_path: Path) -> None:
    folder = store_of_release(tmp_path)
    assert repair(folder, "gw", ["route/central"]).damage == []
    assert stored(folder, "PRAGMA user_version") == [(7,)]
    with contextlib.closing(sqlite3.connect(folder / MESSAGES, isolation_level=None)) as connection:
        connection.execute("UPDATE cursor SET position = position + 1")
    before = (folder / MESSAGES).read_bytes()
    with pytest.raises(StoreError, match=r"damaged, and of version 7: the release that made it repairs it"):
        repair(folder, "gw", ["route/central"])
    assert (folder / MESSAGES).read_bytes() == before


async def test_a_schema_that_is_no_text_any_more_is_damage_like_any_other(tmp_path: Path, seed: int) -> None:
    await fill(tmp_path, random.Random(seed))
    model, sessions = messages_in(tmp_path), rows_in(tmp_path)["session"]
    data = (tmp_path / MESSAGES).read_bytes()
    (tmp_path / MESSAGES).write_bytes(data.replace(b"CREATE TABLE", b"CREATE \xbc\xbc\xbc\xbc\xbc"))
    with pytest.raises(StoreError, match="malformed database schema"):
        await MessageLog.open(tmp_path, origin="gw")
    assert any("malformed database schema" in damage for damage in repair(tmp_path, "gw", []).damage)
    assert (messages_in(tmp_path), rows_in(tmp_path)["session"]) == (model, sessions)


@pytest.mark.parametrize("corrupt", [1, 2])
async def test_where_it_is_lost_which_pages_are_indexes_nothing_in_them_is_taken_for_rows(
    tmp_path: Path, seed: int, corrupt: int
) -> None:
    await fill(tmp_path, random.Random(seed))
    model, rows = messages_in(tmp_path), rows_in(tmp_path)
    leaves = below(Pages(tmp_path / MESSAGES), 1)
    corrupt_pages(tmp_path / MESSAGES, leaves[:corrupt], random.Random(seed), zero)
    repair(tmp_path, "gw", [])
    assert messages_in(tmp_path) == model
    after = rows_in(tmp_path)
    assert after["incoming"] == (rows["incoming"] if corrupt == 1 else set())  # in doubt rather twice than never
    assert (after["flow"], after["retained"], after["will"]) == (rows["flow"], rows["retained"], rows["will"])


async def test_a_store_that_lost_its_end_goes_on_and_gives_no_identity_twice(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    await fill(tmp_path, rng)
    model = dict(messages_in(tmp_path))
    path = tmp_path / MESSAGES
    path.write_bytes(path.read_bytes()[: path.stat().st_size * rng.randrange(10, 90) // 100])
    assert f"{MESSAGES}: its last" in " ".join(repair(tmp_path, "gw", ["route/central"]).damage)
    kept = messages_in(tmp_path)
    assert dict(kept).items() <= model.items()
    async with opened(tmp_path) as log:
        route = Cursor(log, "route/central", ["#"])
        await log.submit([Message("a", b"new")])
        deliveries = [delivery for _ in kept for delivery in await route.fetch_now(1)]
        (new,) = await route.fetch_now(1)
    assert [(delivery.position, delivery.message) for delivery in deliveries] == kept
    assert new.message.payload == b"new"
    given = {(message.origin, message.epoch) for message in model.values()}
    assert (new.message.origin, new.message.epoch) not in given


async def test_retained_messages_are_there_after_the_log_lost_its_end(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        Cursor(log, "keeper", ["#"])
        for _ in range(30):
            await log.submit([Message("a", bytes(3000))])
        await log.submit([message := Message("kept", b"value", retain=True), Keep(message)])
    lying_in = pages_of_messages(tmp_path / MESSAGES)
    corrupt_pages(
        tmp_path / MESSAGES, [max(page for pages in lying_in.values() for page in pages)], random.Random(0), zero
    )
    assert repair(tmp_path, "gw", []).damage
    async with opened(tmp_path) as log:
        assert log.head < 31
        found = (await log.reader.read_retained(["kept"]))["kept"]
        assert found is not None and found[1].payload == b"value"


async def test_messages_that_were_deleted_after_all_consumers_had_them_are_not_told_as_lost(tmp_path: Path) -> None:
    """The place of a consumer that nothing came for is at the beginning of the log in the file of a killed store."""
    store, killed = tmp_path / "store", tmp_path / "killed"
    async with opened(store) as log:
        Cursor(log, "panel", ["alarm"])
        witness = Cursor(log, "witness", ["#"])
        for _ in range(4):
            await append_all(log, numbered(25))
            await take_all(witness)
        await log.eviction.evict(0, 0)  # has the log trimmed
        leave_as_killed(store, killed)
    kept = len(messages_in(killed))
    assert kept < 100
    assert stored(killed, "SELECT position FROM cursor WHERE consumer = 'panel'") == [(0,)]
    corrupt_pages(killed / MESSAGES, [1], random.Random(0), zero)
    report = repair(killed, "gw", [])
    assert (report.messages, [lost.messages for lost in report.lost]) == (kept, [0])
    assert [first for first, _ in lost_identities(killed)] == [101]
    async with opened(killed) as log:
        assert Cursor(log, "panel", ["alarm"]).position >= 100 - kept


@pytest.mark.parametrize("change_it", ["UPDATE cursor SET position = position + 1", "UPDATE will SET delay_s = 1"])
async def test_a_place_or_will_that_is_another_is_not_believed(tmp_path: Path, seed: int, change_it: str) -> None:
    await fill(tmp_path, random.Random(seed))
    change(tmp_path, change_it)
    report = repair(tmp_path, "gw", ["route/central"])
    assert report.damage == [f"{MESSAGES}: messages, places, sessions or wills are not as they were stored"]
    async with opened(tmp_path) as log:
        route = Cursor(log, "route/central", ["#"])
        assert (await route.fetch_now(1))[0].position == 1
    assert repair(tmp_path, "gw", []).damage == []


@pytest.mark.parametrize("known_seed", [None, 625125623])
async def test_a_wal_that_is_damaged_costs_only_what_was_in_its_damaged_pages(
    tmp_path: Path, seed: int, known_seed: int | None
) -> None:
    rng = random.Random(known_seed or seed)  # the known one hits the first messages and the route's place
    killed = tmp_path / "killed"
    async with opened(tmp_path / "store") as log:
        keeper = Cursor(log, "route/central", ["#"])
        for number in range(60):
            await log.submit([Message("a", b"%d" % number * rng.randrange(1, 500))])
        shutil.copytree(tmp_path / "store", killed)
        keeper.close()
    model = dict(messages_in(tmp_path / "store"))
    path = killed / f"{MESSAGES}-wal"
    data = bytearray(path.read_bytes())
    starts = range(32, len(data), PAGE_SIZE + 24)
    frames = sum(any(data[start : start + 24]) for start in starts)  # the file is larger than what is in it
    for frame in {0, *rng.sample(range(frames // 2), 3)}:
        data[32 + frame * (PAGE_SIZE + 24) + 24 + rng.randrange(PAGE_SIZE)] ^= 0xFF
    path.write_bytes(data)
    before = (killed / MESSAGES).read_bytes(), path.read_bytes()
    with pytest.raises(StoreError, match="its WAL is damaged, and messages are behind that; `holdfast gateway repair`"):
        await MessageLog.open(killed, origin="gw")
    assert ((killed / MESSAGES).read_bytes(), path.read_bytes()) == before
    report = repair(killed, "gw", ["route/central"])
    assert report.damage == [f"{MESSAGES}: its WAL is damaged"]
    kept = dict(messages_in(killed))
    assert kept.items() <= model.items()
    assert len(kept) > len(model) * 3 // 4
    ranges = lost_identities(killed)
    assert all(any(first <= model[lost].seq <= last for first, last in ranges) for lost in model.keys() - kept.keys())


async def test_a_transaction_that_the_power_cut_in_its_middle_is_no_damage(tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    async with opened(tmp_path / "store") as log:
        Cursor(log, "keeper", ["#"])
        await log.submit([Message("a", b"first")])
        await log.submit([Message("a", b"x" * 20_000)])
        shutil.copytree(tmp_path / "store", killed)
    path = killed / f"{MESSAGES}-wal"
    length = path.stat().st_size
    torn = bytearray(path.read_bytes().rstrip(b"\0"))
    torn[-3 * PAGE_SIZE : -2 * PAGE_SIZE] = bytes(PAGE_SIZE)
    path.write_bytes(torn.ljust(length, b"\0"))
    (killed / "lock").unlink()  # which tells of what was durable alone
    assert repair(killed, "gw", []).damage == []
    async with opened(killed) as log:
        assert log.head == 1


async def test_a_batch_in_flight_keeps_the_messages_that_are_left_when_the_newest_are_lost(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        Cursor(log, "keeper", ["#"])
        for number in range(1, 7):
            await log.submit([Message("a", b"%d" % number, 2)])
        await log.submit([qos2.begin([qos2.Flow("route/central\0", 9, "route/central", 6, ranges=((1, 2), (4, 6)))])])
    change(tmp_path, "DELETE FROM message_group WHERE last > 4")
    change(tmp_path, "DROP TABLE will")
    repair(tmp_path, "gw", [])
    async with opened(tmp_path) as log:
        (flow,) = log.found.flows
        assert (flow.position, flow.ranges, flow.state) == (4, ((1, 2), (4, 4)), qos2.BEGUN)
        assert log.passed("route/central") == {1, 2, 4}
        assert log.space.needed_from == 0


async def test_tables_that_are_missing_are_made_again(tmp_path: Path, seed: int) -> None:
    await fill(tmp_path, random.Random(seed))
    model, rows = messages_in(tmp_path), rows_in(tmp_path)
    for table in ("flow", "will"):
        change(tmp_path, f"DROP TABLE {table}")
        rows[table] = set()
    with pytest.raises(StoreError, match="no such table"):
        await MessageLog.open(tmp_path, origin="gw")
    assert repair(tmp_path, "gw", []).damage == [f"{MESSAGES}: table {table} is missing" for table in ("flow", "will")]
    assert messages_in(tmp_path) == model
    after = rows_in(tmp_path)
    assert all(after[table] >= rows[table] for table in rows)


@pytest.mark.parametrize("how", [zero, noise])
async def test_a_wal_without_its_beginning_is_damage(tmp_path: Path, seed: int, how: Corrupt) -> None:
    running, killed = tmp_path / "running", tmp_path / "killed"
    sent = [b"%d" % number * 100 for number in range(100)]
    async with opened(running) as log:
        Cursor(log, "away", ["#"])  # the messages stay for it, however long this takes
        for payload in sent:
            await log.submit([Message("a", payload)])
        shutil.copytree(running, killed)
    (killed / f"{MESSAGES}-shm").unlink()
    corrupt_beginning(killed / f"{MESSAGES}-wal", random.Random(seed), how)
    with pytest.raises(StoreError, match="its WAL is damaged"):
        await MessageLog.open(killed, origin="gw")
    assert repair(killed, "gw", []).damage == [f"{MESSAGES}: its WAL is damaged"]
    kept = [message.payload for _, message in messages_in(killed)]
    assert kept == [payload for payload in sent if payload in kept]
    assert kept[-1] == sent[-1]
    assert len(kept) > 90


@pytest.mark.parametrize("how", [zero, noise])
async def test_a_wal_without_its_beginning_of_which_all_was_copied_hides_nothing(
    tmp_path: Path, seed: int, how: Corrupt
) -> None:
    running, killed = tmp_path / "running", tmp_path / "killed"
    async with opened(running) as log:
        Cursor(log, "away", ["#"])
        await append_all(log, [Message("a", b"%d" % number * 100) for number in range(100)])
        assert stored(running, "PRAGMA wal_checkpoint(PASSIVE)")[0][0] == 0
        shutil.copytree(running, killed)
    (killed / f"{MESSAGES}-shm").unlink()
    corrupt_beginning(killed / f"{MESSAGES}-wal", random.Random(seed), how)
    async with opened(killed) as log:
        assert log.head == 100


def change(folder: Path, statement: str) -> None:
    connection = sqlite3.connect(folder / MESSAGES)
    connection.execute(statement)
    connection.commit()
    connection.close()


async def test_a_session_whose_description_is_lost_is_named(tmp_path: Path, seed: int) -> None:
    await fill(tmp_path, random.Random(seed))
    change(tmp_path, "UPDATE session SET crc = crc + 1 WHERE client_id = 's 0'")
    report = repair(tmp_path, "gw", [])
    assert report.sessions_lost == ["s 0"]
    assert report.kept["session"] == 2 * 39


async def test_a_session_of_which_a_byte_is_another_is_not_taken_over(tmp_path: Path, seed: int) -> None:
    await fill(tmp_path, random.Random(seed))
    minute, longer = 60, 61  # seconds, in MessagePack as well
    body = f"CAST(replace(body, x'{minute:x}', x'{longer:x}') AS BLOB)"
    change(tmp_path, f"UPDATE session SET body = {body} WHERE client_id = 's 7' AND topic_filter = ''")
    report = repair(tmp_path, "gw", [])
    assert report.damage == [f"{MESSAGES}: messages, places, sessions or wills are not as they were stored"]
    assert report.kept["session"] == 2 * 40 - 1
    (note,) = quarantine.notes_in(tmp_path)
    assert note.reason == report.damage[0]


async def test_a_second_repair_does_not_tell_again_what_the_first_one_has_told(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    async with opened(tmp_path) as log:
        Cursor(log, "route/central", ["#"])
        await append_each(log, numbered(400))
    for part in (1, 2):
        pages = pages_of_messages(tmp_path / MESSAGES)
        row = rng.choice([row for row in pages if 200 * part - 150 < row < 200 * part - 50])
        corrupt_pages(tmp_path / MESSAGES, [max(pages[row])], rng, zero)
        repair(tmp_path, "gw", ["route/central"])
    told = stored(tmp_path, "SELECT sum(messages) FROM dropped WHERE reason = 'damaged'")
    kept = messages_in(tmp_path)
    assert told == [(400 - len(kept),)]
    async with opened(tmp_path) as log:
        route = Cursor(log, "route/central", ["#"])
        await log.backlogs.count(route)
        assert route.backlog is not None and route.backlog.messages == len(kept) == log.space.needed_count


async def test_a_store_that_is_whole_is_left_as_it_is(tmp_path: Path, seed: int) -> None:
    await fill(tmp_path, random.Random(seed))
    before = (tmp_path / MESSAGES).read_bytes()
    assert repair(tmp_path, "gw", []).damage == []
    assert (tmp_path / MESSAGES).read_bytes() == before


async def test_a_store_that_is_in_use_or_none_of_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is none"):
        repair(tmp_path, "gw", [])
    async with opened(tmp_path):
        with pytest.raises(StoreError, match="another process uses it"):
            repair(tmp_path, "gw", [])
    with contextlib.closing(sqlite3.connect(tmp_path / MESSAGES, isolation_level=None)) as other:
        other.executescript("PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; UPDATE identity SET epoch = 1;")
        with pytest.raises(StoreError, match="locked"):
            repair(tmp_path, "gw", [])
    for pragma, what in (("user_version = 1", "of version 1"), ("application_id = 1", "not a message store")):
        change(tmp_path, f"PRAGMA {pragma}")
        with pytest.raises(StoreError, match=what):
            repair(tmp_path, "gw", [])


async def test_a_kill_in_the_middle_of_a_repair_leaves_either(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    damaged = tmp_path / "damaged"
    await fill(damaged, rng)
    model = dict(messages_in(damaged))
    lying_in = pages_of_messages(damaged / MESSAGES)
    corrupt_pages(damaged / MESSAGES, [1, max(lying_in[rng.choice(sorted(lying_in))])], rng, zero)
    shutil.copytree(damaged, tmp_path / "whole")
    steps = int(repair_in_a_process(tmp_path / "whole", 0).stdout)
    whole = messages_in(tmp_path / "whole")
    assert dict(whole).items() < model.items()
    for step in [*rng.sample(range(1, steps - 12), 4), *range(steps - 12, steps + 1)]:
        folder = tmp_path / str(step)
        shutil.copytree(damaged, folder)
        assert repair_in_a_process(folder, step).returncode == -9
        is_untouched = (folder / MESSAGES).exists() and not (folder / "repaired").exists()
        is_old = is_untouched and (folder / MESSAGES).read_bytes() == (damaged / MESSAGES).read_bytes()
        assert repair(folder, "gw", []).damage == [f"{MESSAGES}: its header is damaged"] * is_old
        assert messages_in(folder) == whole
        (kept,) = [path for path in folder.iterdir() if path.name.startswith("damaged-")]
        assert (kept / MESSAGES).read_bytes() == (damaged / MESSAGES).read_bytes()
        left = {path.name for path in folder.iterdir() if not path.name.endswith(("-wal", "-shm"))}
        assert left == {kept.name, MESSAGES, quarantine.FILE, "lock"}


def repair_in_a_process(folder: Path, step: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.gateway.store.repair.repair_killed", str(folder), str(step)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
