"""What a route that keeps did not hand on, against a plain set of positions, over restarts and kills at any commit."""

import random
import sqlite3
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.store import LaneCursor, MessageLog
from gateway.store.routes.unsent import Unsent
from gateway.store.tables import routes
from gateway.store.tables.log_rows import Work
from tests.gateway.store.routes.test_left_by_rule import ROUTE, everything, fill, keep_tens
from tests.gateway.store.support import disk_full, opened, stored

CHUNK = routes.CHUNK


def bits_in(rows: dict[int, int]) -> set[int]:
    return {chunk * CHUNK + bit for chunk, bits in rows.items() for bit in range(bits.bit_length()) if bits >> bit & 1}


def in_file(folder: Path) -> set[int]:
    """The positions that the file has."""
    rows = stored(folder, "SELECT chunk, bits FROM unsent")
    return bits_in({chunk: int.from_bytes(bits, "little") for chunk, bits in rows})


def cursor_of(log: MessageLog) -> LaneCursor:
    cursor = LaneCursor(log, ROUTE, ["#"], window=20)
    cursor.tell_unsent = partial(log.kept.note_unsent, ROUTE)
    cursor.drop_by(None, keep_tens)
    log.kept.begin(ROUTE, cursor.position)
    return cursor


def test_runs_of_sent_messages_are_those_between_the_others(seed: int) -> None:
    dice = random.Random(seed)
    with sqlite3.connect(":memory:") as connection:
        connection.executescript(routes.UNSENT_SCHEMA)

        def write(works: list[Work]) -> None:
            for work in works:
                assert callable(work)
                work(connection)

        known: set[int] = set()
        unsent, place = Unsent(ROUTE, {}), 0
        for _ in range(60):
            base = dice.choice((1, CHUNK - 5, 3 * CHUNK - 3)) + dice.randrange(20)
            some = [one for one in (base + dice.randrange(30) for _ in range(dice.randrange(20))) if one > place]
            unsent.add(some)
            known.update(some)
            write(unsent.works(0))
            if dice.random() < 0.1:
                place = max(place, base - 25)
                write(unsent.forget(place))
            if dice.random() < 0.2:
                unsent = Unsent(ROUTE, routes.load_unsent(connection).get(ROUTE, {}))
            first = max(place + 1, base - dice.randrange(20))
            last = first + dice.randrange(2 * CHUNK)
            runs = list(unsent.sent_between(first, last))
            assert [one for run in runs for one in range(run[0], run[1] + 1)] == [
                one for one in range(first, last + 1) if one not in known
            ]
            assert all(later[0] > earlier[1] + 1 for earlier, later in pairwise(runs))
        write(unsent.forget_all())
        assert not unsent and not connection.execute("SELECT * FROM unsent").fetchall()


async def test_a_kill_leaves_exactly_what_was_left_out_up_to_the_place(tmp_path: Path, seed: int) -> None:
    """What the file has at any commit is what a kill leaves: what is behind the place comes again, and may go."""
    dice = random.Random(seed)
    async with opened(tmp_path) as log:
        cursor = cursor_of(log)
        for begin in range(1, 1001, 100):
            await fill(log, range(begin, begin + 100), dice.choice("abc"))
            sent = [one.packet_identifier for one in await cursor.fetch_now(20)]
            cursor.acknowledge_all(sent[: dice.randrange(len(sent) + 1)])
            await log.submit([])
            ((place,),) = stored(tmp_path, f"SELECT position FROM cursor WHERE consumer = '{ROUTE}'") or [(0,)]
            assert in_file(tmp_path) == {one for one in range(1, place + 1) if one % 10}


async def test_a_place_that_could_not_be_saved_is_saved_with_all_that_was_left_out(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = cursor_of(log)
        await fill(log, range(1, 51))
        with disk_full():
            cursor.acknowledge_all([one.packet_identifier for one in await cursor.fetch_now(20)])
            with pytest.raises(sqlite3.Error):
                await log.submit([lambda _: None])
        await fill(log, range(51, 101))
        await everything(cursor)
    assert in_file(tmp_path) == {one for one in range(1, 101) if one % 10}


async def test_a_route_that_does_not_keep_notes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        cursor = cursor_of(log)
        await fill(log, range(1, 51))
        cursor.acknowledge_all([one.packet_identifier for one in await cursor.fetch_now(20)])
        await log.submit([])
        assert in_file(tmp_path)
        log.kept.end(ROUTE)
        await fill(log, range(51, 101))
        cursor.acknowledge_all([one.packet_identifier for one in await cursor.fetch_now(20)])
    assert in_file(tmp_path) == set()
