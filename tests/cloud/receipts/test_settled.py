"""Receipts say what the ledger and the statements say: all of it where there is room, and never more."""

import random
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cloud.queries.views import name_in_sql
from cloud.receipts.settled import Facts, find_settled
from cloud.tables.schema import TABLES
from tests.cloud.engine import open_duckdb
from tests.cloud.receipts.bare import Bare
from tools.lab.torture.proof.history import History
from tools.lab.torture.proof.tables import open_tables
from wire.receipt import Settled


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return Bare(tmp_path)


def numbers(settled: Settled) -> set[int]:
    runs = [(1, settled.high), *settled.runs]
    return {number for first, last in runs for number in range(first, last + 1)}


def of(bare: Bare, origin: str) -> Settled:
    (found,) = bare.receipts()[origin].epochs
    return found


def test_what_arrived_is_settled_from_its_first_number_on(bare: Bare) -> None:
    bare.arrived(1, ("garage", 1, 3), ("garage", 7, 9))
    bare.arrived(2, ("garage", 4, 5), ("attic", 2, 2))
    receipts = bare.receipts()
    assert receipts["garage"].epochs == [Settled(0x1F, 5, [(7, 9)])]
    assert receipts["attic"].epochs == [Settled(0x1F, 0, [(2, 2)])]
    assert {one.batch for one in receipts.values()} == {2}
    assert len({one.tables for one in receipts.values()}) == 1


def test_what_a_route_left_out_or_dropped_and_what_was_forgotten_is_settled(bare: Bare) -> None:
    bare.arrived(1, ("garage", 1, 1))
    bare.crossed(1, "garage")
    bare.left_out(1, "garage", 2, 3)
    bare.dropped(1, "garage", 4, 5, reason="expired")
    bare.forgotten("garage", 6, 6)
    assert of(bare, "garage") == Settled(0x1F, 6, [])


def test_range_that_does_not_name_each_message_and_one_that_is_unproven_settle_nothing(bare: Bare) -> None:
    bare.arrived(1, ("garage", 1, 1))
    bare.crossed(1, "garage")
    bare.dropped(1, "garage", 2, 9, messages=3)
    bare.dropped(1, "garage", 11, 12, reason="unproven")
    bare.dropped(1, "", 0, 0, messages=7)
    bare.dropped(1, "garage", 0, 2**63 - 1, messages=7)
    assert of(bare, "garage") == Settled(0x1F, 1, [])


def test_smaller_range_that_named_each_message_stays_settled_when_it_has_grown(bare: Bare) -> None:
    bare.arrived(1, ("garage", 1, 1))
    bare.crossed(1, "garage")
    bare.dropped(1, "garage", 2, 4)
    bare.dropped(2, "garage", 2, 9, messages=5)
    bare.arrived(2, ("garage", 20, 20))
    assert of(bare, "garage") == Settled(0x1F, 4, [(20, 20)])


def test_route_says_nothing_of_an_origin_that_did_not_come_over_it(bare: Bare) -> None:
    bare.arrived(1, ("garage", 1, 1), ("attic", 1, 1))
    bare.crossed(1, "attic")
    bare.crossed(1, "garage", gateway="another")
    bare.crossed(1, "garage", epoch="000000ff")
    bare.left_out(1, "garage", 2, 3)
    bare.dropped(1, "garage", 4, 5)
    assert of(bare, "garage") == Settled(0x1F, 1, [])


def test_rows_of_a_batch_that_does_not_count_settle_nothing(bare: Bare) -> None:
    bare.arrived(1, ("garage", 1, 1))
    bare.crossed(1, "garage")
    bare.left_out(2, "garage", 2, 3)
    bare.dropped(2, "garage", 4, 5)
    assert (of(bare, "garage"), bare.receipts()["garage"].batch) == (Settled(0x1F, 1, []), 1)
    bare.crossed(2, "attic")
    bare.left_out(1, "attic", 1, 1)
    assert "attic" not in bare.receipts()


def test_epoch_with_the_newest_batch_comes_first(bare: Bare) -> None:
    bare.arrived(1, ("garage", 1, 1, "000000aa"), ("garage", 1, 1, "000000bb"))
    bare.arrived(2, ("garage", 1, 1, "000000cc"))
    bare.arrived(3, ("garage", 2, 2, "000000bb"))
    assert [one.epoch for one in bare.receipts()["garage"].epochs] == [0xBB, 0xCC, 0xAA]


def test_only_origins_of_which_later_batches_tell_something_are_made_and_they_are_whole(bare: Bare) -> None:
    bare.arrived(1, ("garage", 1, 5), ("attic", 1, 1), ("cellar", 1, 1), ("barn", 1, 1))
    bare.crossed(1, "attic")
    bare.dropped(1, "cellar", 2, 2)
    bare.left_out(2, "attic", 2, 2)
    bare.crossed(2, "cellar")
    bare.arrived(3, ("garage", 6, 6))
    everything = bare.receipts()
    assert bare.receipts(since=1) == {one: everything[one] for one in ("garage", "attic", "cellar")}
    assert bare.receipts(since=2) == {"garage": everything["garage"]}
    assert bare.receipts(since=3) == {}
    assert everything["cellar"].epochs == [Settled(0x1F, 2, [])]


def test_receipts_of_the_same_tables_are_the_same(bare: Bare) -> None:
    for batch in range(1, 6):
        bare.arrived(batch, *((f"device-{n}", 3 * batch, 3 * batch + n % 2, f"{n % 3:08x}") for n in range(40)))
    assert bare.receipts() == bare.receipts()


def test_highest_number_and_names_that_no_topic_has(bare: Bare) -> None:
    bare.arrived(1, ("garage", 1, 2**63 - 1), ("x" * 300, 1, 1), ("a/b", 0, 4))
    assert of(bare, "garage") == Settled(0x1F, 2**63 - 1, [])
    assert of(bare, "a/b") == Settled(0x1F, 4, [])
    assert set(bare.receipts()) == {"garage", "a/b"}


def random_rows(chance: random.Random, bare: Bare) -> dict[str, set[int]]:
    """Fills tables at random; returns which numbers of each origin are settled, counted one by one."""
    settled: dict[str, set[int]] = defaultdict(set)
    crossed = {one for one in "abc" if chance.random() < 0.7}
    if crossed:
        bare.crossed(1, *crossed)
    arrived = {one: {n for n in range(1, 41) if chance.random() < 0.5} for one in "abc"}
    for batch in (1, 2, 3):
        for origin, some in arrived.items():
            now = {n for n in some if chance.random() < 0.5 or batch == 3}
            some -= now
            settled[origin] |= now
            if now:
                bare.arrived(batch, *((origin, n, n) for n in sorted(now)))
    for _ in range(12):
        origin, first = chance.choice("abc"), chance.randint(1, 45)
        last = first + chance.choice((0, 0, 1, 4))
        batch = chance.choice((1, 2, 3, 4))  # the last one does not count
        kind = chance.choice(("left out", "evicted", "selected", "unproven", "counted", "forgotten"))
        if kind == "left out":
            bare.left_out(batch, origin, first, last)
        elif kind == "forgotten":
            bare.forgotten(origin, first, last)
        else:
            fewer = kind == "counted" and last > first
            reason = "expired" if kind == "counted" else kind
            bare.dropped(batch, origin, first, last, last - first if fewer else None, reason)
            if fewer or kind == "unproven":
                continue
        if kind == "forgotten" or (batch < 4 and origin in crossed):
            settled[origin] |= set(range(first, last + 1))
    return settled


@pytest.mark.parametrize("run", range(6))
def test_random_tables_settle_what_counting_one_by_one_does(bare: Bare, seed: int, run: int) -> None:
    expected = random_rows(random.Random(seed + run), bare)
    bare.arrived(3, ("last", 1, 1))  # so that batch 3 counts
    found = {origin: set().union(*map(numbers, one.epochs)) for origin, one in bare.receipts().items()}
    assert found == {**{origin: some for origin, some in expected.items() if some}, "last": {1}}


def facts_of(tables: dict[str, pa.Table]) -> Facts:
    stated = ["origin", "origin_epoch", "gateway", "route", "batch"]
    dropped = tables["statement_dropped"].filter(pc.field("first") > 0)
    return Facts(
        tables["ledger_rows"].select(["origin", "epoch", "lo", "hi", "batch"]),
        tables["forgotten"].select(["origin", "epoch", "lo", "hi"]),
        tables["statement_left_out"].select([*stated, "lo", "hi"]),
        dropped.select([*stated, "reason", "first", "last", "messages"]),
        tables["crossings"].select(["origin", "epoch", "gateway", "route"]),
    )


def spread(spans: Iterable[tuple[str, str, int, int]]) -> dict[tuple[str, int], set[int]]:
    found: dict[tuple[str, int], set[int]] = defaultdict(set)
    for origin, epoch, lo, hi in spans:
        found[origin, int(epoch, 16)].update(range(lo, hi + 1))
    return found


@pytest.mark.parametrize("run", range(3))
def test_random_histories_are_settled_as_the_views_have_them(seed: int, run: int) -> None:
    """Up to the last number that is known: what is in no gap, and the gaps that say why message by message."""
    histories = [History(seed + 1000 * run + place, f"{place}.") for place in range(60)]
    with open_tables([row for one in histories for row in one.landed]) as engine:
        tables = {name: engine.sql(f"SELECT * FROM {name}").to_arrow_table() for name in map(name_in_sql, TABLES)}
        gaps = spread(engine.execute("SELECT origin, epoch, lo, hi FROM gaps").fetchall())
        known = engine.execute("SELECT origin, epoch, last FROM completeness").fetchall()
        exact = spread(
            engine.execute(
                "SELECT dropped.origin, origin_epoch, first, dropped.last FROM statement_dropped AS dropped"
                " SEMI JOIN crossings ON dropped.origin = crossings.origin AND origin_epoch = crossings.epoch"
                " AND dropped.gateway = crossings.gateway AND dropped.route = crossings.route"
                " WHERE first > 0 AND messages = dropped.last - first + 1 AND reason <> 'unproven'"
            ).fetchall()
        )
        left_out = spread(engine.execute("SELECT origin, epoch, lo, hi FROM left_out").fetchall())
    found = {(origin, one.epoch): numbers(one) for origin, epochs in find_settled(facts_of(tables)) for one in epochs}
    assert found.keys() == {(origin, int(epoch, 16)) for origin, epoch, _ in known}
    for origin, epoch, last in known:
        stream = origin, int(epoch, 16)
        expected = set(range(1, last + 1)) - gaps[stream] | exact[stream] | left_out[stream]
        assert found[stream] == expected, stream


def test_what_the_view_left_out_has_is_settled(bare: Bare) -> None:
    bare.arrived(1, ("garage", 1, 1), ("attic", 1, 1))
    bare.crossed(1, "garage")
    for origin in ("garage", "attic"):
        bare.left_out(1, origin, 3, 3)
        bare.dropped(1, origin, 5, 6, reason="selected")
        bare.dropped(1, origin, 8, 9, 1, reason="selected")
    with open_duckdb(bare.folder) as engine:
        shown = spread(engine.execute("SELECT origin, epoch, lo, hi FROM left_out").fetchall())
    assert shown == {("garage", 0x1F): {3, 5, 6}}
    assert numbers(of(bare, "garage")) == {1, 3, 5, 6}
    assert numbers(of(bare, "attic")) == {1}
