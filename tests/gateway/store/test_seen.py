"""Identities of messages that came over links: none is known that a power cut can take away, and none is forgotten."""

import asyncio
import random
import sqlite3
import tracemalloc
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.message import Message
from gateway.store import AckBatch, AckOrder, Cursor, MessageLog, Standing, masks_of_batch, quarantine, seen
from gateway.store import masks_of as masks_of_messages
from gateway.store.repair import repair
from gateway.store.seen_chunks import ChunkSet
from gateway.store.tables.seen import CHUNK, DIGEST, Mask, Masks, SeenRows
from tests.gateway.store.support import (
    append_all,
    disk_full,
    leave_as_killed,
    messages_in,
    numbered,
    opened,
    stored,
    take_all,
)
from tests.gateway.support import until
from wire.bulk.content_digest import content_digest
from wire.identity import encode_identity

Identity = tuple[str, int, int]
DAY_MS = 24 * 3600 * 1000


def message_of(identity: Identity, qos: int = 1, size: int = 1) -> Message:
    origin, epoch, seq = identity
    return Message("a", bytes(size), qos, origin=origin, epoch=epoch, seq=seq)


def masks_of(identities: Iterable[Identity], payload: bytes = b"\0") -> Masks:
    """Returns the masks of messages with the content that `message_of` gives, or with another payload."""
    return masks_of_messages((*identity, content_digest("a", payload)) for identity in identities)


def submit(log: MessageLog, *identities: Identity) -> asyncio.Future[list[Any]]:
    """What the intake of a link submits for new messages, each once."""
    return log.submit([*map(message_of, identities), log.seen.note(masks_of(identities))])


async def store(log: MessageLog, identities: Iterable[Identity]) -> None:
    await submit(log, *identities)


def standing(log: MessageLog, identity: Identity) -> Standing:
    return log.seen.standing(masks_of([identity]))


def known(log: MessageLog, identities: Iterable[Identity]) -> list[Identity]:
    return [identity for identity in identities if log.seen.is_known(*identity)]


async def saved(log: MessageLog) -> None:
    """Saves all that is noted."""
    log.seen.save()
    await log.submit([])


def refuse(connection: sqlite3.Connection) -> None:
    """A work that fails its transaction, as a medium may."""
    raise sqlite3.OperationalError("disk I/O error")


DEVICE = [("device", 7, seq) for seq in range(1, 200)]


async def test_an_identity_is_pending_until_its_message_is_durable_and_known_from_then_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        assert standing(log, DEVICE[0]) is Standing.NEW
        future = submit(log, DEVICE[0])
        assert standing(log, DEVICE[0]) is Standing.PENDING
        await future
        assert known(log, DEVICE) == DEVICE[:1]
        assert log.seen.standing(masks_of(DEVICE)) is Standing.MIXED


async def test_a_commit_that_fails_makes_its_identities_and_those_behind_it_new_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await store(log, DEVICE[:1])
        masks = masks_of(DEVICE[1:3])
        failing = log.submit([*map(message_of, DEVICE[1:3]), log.seen.note(masks), refuse])
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # it is on its way to the medium now
        behind = submit(log, *DEVICE[3:5])
        for future in (failing, behind):
            with pytest.raises(sqlite3.OperationalError):
                await future
        await asyncio.sleep(0)  # what waits for the futures is told
        assert [standing(log, one) for one in DEVICE[:5]] == [Standing.STORED] + 4 * [Standing.NEW]
        await store(log, DEVICE[1:5])
        assert known(log, DEVICE) == DEVICE[:5]


async def test_what_waits_for_a_pending_identity_is_called_when_it_is_settled_either_way(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        for works in ([], [refuse]):
            masks = masks_of(DEVICE[:1])
            called = asyncio.Event()
            future = log.submit([message_of(DEVICE[0]), log.seen.note(masks), *works])
            log.seen.wait(called.set)
            await called.wait()
            assert bool(works) == bool(future.exception())


@pytest.mark.parametrize("works", [[], [refuse]])
async def test_identities_that_join_a_note_end_with_its_transaction(tmp_path: Path, works: list[Any]) -> None:
    async with opened(tmp_path) as log:
        note = log.seen.note(masks_of(DEVICE[:1]))
        for one in DEVICE[1:4]:
            log.seen.note_too(note, masks_of([one]))
        assert [standing(log, one) for one in DEVICE[:5]] == [Standing.PENDING] * 4 + [Standing.NEW]
        future = log.submit([*map(message_of, DEVICE[:4]), note, *works])
        await asyncio.wait([future])
        assert bool(future.exception()) == bool(works)
        await asyncio.sleep(0)  # what waits for the future is told
        assert known(log, DEVICE) == ([] if works else DEVICE[:4])
        assert [standing(log, one) for one in DEVICE[:4]] == [Standing.NEW if works else Standing.STORED] * 4


async def test_works_that_are_given_up_before_they_are_submitted_leave_nothing_pending(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        failed: list[str] = []
        acks = AckBatch(log.hand_in, AckOrder(lambda: None, failed.append))
        for seq, works in ((0, [refuse]), (1, [])):
            note = log.seen.note(masks_of([DEVICE[seq]]))
            acks.add(lambda: failed.append("answered"), message_of(DEVICE[seq]), note, *works)
            if works:
                acks.end()
        await until(lambda: failed, "the first batch has failed")
        assert failed == ["the message store failed: disk I/O error"]
        assert [standing(log, one) for one in DEVICE[:2]] == [Standing.NEW] * 2


@dataclass
class Model:
    """What a store promised: the identities whose transaction was durable."""

    durable: set[Identity] = field(default_factory=set)
    pending: dict[asyncio.Future[list[Any]], list[Identity]] = field(default_factory=dict)

    def settle(self) -> set[Identity]:
        """Returns what is on its way; what has failed a moment ago is on its way until that was told."""
        for future in [future for future in self.pending if future.done() and not future.exception()]:
            self.durable.update(self.pending.pop(future))
        return {one for identities in self.pending.values() for one in identities}


@pytest.mark.parametrize("save_after", [5, 1000])
async def test_over_failures_restarts_and_kills_exactly_what_is_durable_is_known(
    tmp_path: Path, seed: int, save_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen, "SAVE_AFTER_MESSAGES", save_after)
    dice, model = random.Random(seed), Model()
    everything = [(origin, epoch, seq) for origin in "ab" for epoch in (1, 2) for seq in range(CHUNK - 40, CHUNK + 40)]
    folder, life = tmp_path / "0", 0
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(opened(folder))
        route = Cursor(log, "route/central", ["#"])
        for _ in range(400):
            step = dice.randrange(12)
            if step < 6:
                chosen = dict.fromkeys(dice.choices(everything, k=dice.randrange(1, 12)))
                new = [one for one in chosen if standing(log, one) is Standing.NEW]
                on_its_way = model.settle()
                assert {*chosen} - model.durable - on_its_way <= {*new} <= {*chosen} - model.durable
                if new:
                    works = [refuse] if dice.random() < 0.15 else []
                    note = log.seen.note(masks_of(new))
                    model.pending[log.submit([*map(message_of, new), note, *works])] = new
            elif step < 8:
                await asyncio.wait([log.submit(numbered(dice.randrange(5)))])
            elif step < 9:
                await take_all(route)
            elif step < 10:
                log.seen.save()
            else:
                if model.pending:
                    await asyncio.wait(model.pending)
                model.settle()
                model.pending.clear()  # these have failed
                assert {*known(log, everything)} == model.durable
            if step == 11:
                if is_kill := dice.random() < 0.7:
                    leave_as_killed(folder, tmp_path / str(life + 1))
                await stack.aclose()
                life += is_kill
                folder = tmp_path / str(life)
                log = await stack.enter_async_context(opened(folder))
                route = Cursor(log, "route/central", ["#"])
                assert {*known(log, everything)} == model.durable
    assert life > 2 and model.durable


async def test_the_first_one_is_known_after_a_kill_before_anything_was_saved(tmp_path: Path) -> None:
    async with opened(tmp_path / "old") as log:
        await append_all(log, numbered(20))
        await store(log, DEVICE[:1])
        await store(log, DEVICE[1:3])
        leave_as_killed(tmp_path / "old", tmp_path / "new")
    async with opened(tmp_path / "new") as log:
        assert known(log, DEVICE) == DEVICE[:3]


async def test_the_log_keeps_what_is_not_saved_and_lets_go_what_is(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await store(log, DEVICE[:10])
        await append_all(log, numbered(10))
        assert (log.space.needed_count, log.seen.position) == (0, 0)
        await saved(log)
        assert log.seen.position == log.head
        await append_all(log, numbered(10))
        await until(lambda: log.space.stored_count == 1, "all but the newest is deleted")


async def test_where_no_link_is_nothing_is_kept_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen, "SAVE_AFTER_MESSAGES", 1)
    async with opened(tmp_path) as log:
        await append_all(log, [*numbered(10), message_of(DEVICE[0])])
        assert log.seen.position == log.head
    assert stored(tmp_path, "SELECT * FROM seen") == []


async def test_a_start_reads_no_more_of_the_log_than_was_stored_since_the_last_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing has come over a link since."""
    monkeypatch.setattr(seen, "SAVE_AFTER_MESSAGES", 50)
    async with opened(tmp_path) as log:
        Cursor(log, "session/away", ["#"])
        await store(log, DEVICE[:10])
        for _ in range(40):
            await append_all(log, numbered(10))
    ((newest,),) = stored(tmp_path, "SELECT max(position) FROM seen")
    assert 410 - newest <= 60


async def test_what_is_saved_is_written_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen, "SAVE_AFTER_S", 0.01)
    async with opened(tmp_path) as log:
        await store(log, DEVICE[:10])
        await until(lambda: log.seen.position == log.head, "it is saved")
        assert stored(tmp_path, "SELECT origin, epoch, chunk, position FROM seen") == [("device", 7, 0, 10)]


async def test_a_save_that_fails_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen, "SAVE_AFTER_S", 0.01)
    async with opened(tmp_path) as log:
        await store(log, DEVICE[:10])
        with disk_full():
            log.seen.save()
            await asyncio.wait([log.submit(numbered(1))])
            assert log.seen.position == 0
        await until(lambda: log.seen.position == log.head, "it is saved")
    async with opened(tmp_path) as log:
        assert known(log, DEVICE) == DEVICE[:10]


async def test_a_full_store_drops_what_is_kept_for_this_alone_and_counts_no_drop(tmp_path: Path) -> None:
    """The identities stay known until a crash."""
    async with opened(tmp_path / "old") as log:
        Cursor(log, "session/away", ["other"])
        await store(log, DEVICE)
        await log.eviction.evict(0, 1)
        await until(lambda: log.space.stored_count == 1, "all but the newest is deleted")
        assert (log.eviction.count, log.counters.messages_dropped["evicted"]) == (0, 0)
        assert known(log, DEVICE) == DEVICE
        leave_as_killed(tmp_path / "old", tmp_path / "new")
    async with opened(tmp_path / "new") as log:
        assert DEVICE[-1] in known(log, DEVICE)
        assert stored(tmp_path / "new", "SELECT * FROM dropped WHERE reason = 'evicted'") == []


async def test_a_store_that_is_nearly_full_saves_at_once_what_it_keeps_for_this_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await store(log, DEVICE)
        log.space.make_room()
        await until(lambda: log.seen.position == log.head, "it is saved")


async def test_a_message_of_qos_0_is_known_to_others_of_qos_0_alone(tmp_path: Path) -> None:
    """No commit makes it durable, so it must not be acknowledged as known. A start knows nothing of it."""
    one, two, three = DEVICE[:3]
    async with opened(tmp_path) as log:
        await store(log, [one])
        found = [log.seen.take_qos_0(masks_of([identity])) for identity in (one, two, two)]
        assert found == [Standing.STORED, Standing.NEW, Standing.STORED]
        assert log.seen.take_qos_0(masks_of([two], b"another")) is Standing.CONFLICT
        assert standing(log, two) is Standing.NEW
        await log.submit([message_of(three, 0)])  # for a route
        leave_as_killed(tmp_path, tmp_path / "new")
    async with opened(tmp_path / "new") as log:
        assert known(log, DEVICE) == [one]


class Clock:
    """Unix time in ms."""

    def __init__(self) -> None:
        self.ms = 1_760_000_000_000

    def __call__(self) -> int:
        return self.ms


async def test_an_identity_is_known_for_seven_days_after_the_last_one_of_its_chunk(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path) as log:
        timed = seen.Seen(log, SeenRows({}, 0), ("gw", 0), clock)
        await timed.open()

        async def store_at(day: float, identity: Identity) -> None:
            clock.ms = Clock().ms + int(day * DAY_MS)
            await log.submit([message_of(identity), timed.note(masks_of([identity]))])

        await store_at(0, ("old", 1, 1))
        await store_at(0, ("used", 1, 1))
        await store_at(3, ("used", 1, 2))
        await store_at(6.9, ("new", 1, 1))
        assert timed.is_known("old", 1, 1)
        timed.save()
        await log.submit([])
        await store_at(7.1, ("new", 1, 2))
        assert [timed.is_known(origin, 1, 1) for origin in ("old", "used", "new")] == [False, True, True]
        timed.close()
    assert stored(tmp_path, "SELECT origin FROM seen ORDER BY 1") == [("new",), ("used",)]


def test_the_chunks_that_were_touched_longest_ago_are_forgotten_first() -> None:
    chunks = ChunkSet(3, 1000)
    for now_ms, origin in enumerate("abcad"):
        forgotten = chunks.add(masks_of([(origin, 1, 5)]), now_ms)
    assert forgotten.chunks == [("b", 1, 0)]
    assert [bool(chunks.bits_of((origin, 1, 0))) for origin in "abcd"] == [True, False, True, True]


async def test_a_chunk_that_is_forgotten_leaves_the_file_with_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen, "CHUNKS_MAX", 2)
    async with opened(tmp_path) as log:
        for origin in "abcb":
            await store(log, [(origin, 1, log.head + 1)])
            await saved(log)
    assert stored(tmp_path, "SELECT origin FROM seen ORDER BY 1") == [("b",), ("c",)]


def test_digests_agree_with_a_dictionary(seed: int) -> None:
    dice = random.Random(seed)
    chunks, model = ChunkSet(2, 100_000), dict[int, bytes]()
    for _ in range(300):
        first = dice.randrange(CHUNK)
        seqs = [*range(first, min(CHUNK, first + dice.choice((1, 3, 200)))), *dice.sample(range(CHUNK), 3)]
        came = {seq: dice.choice((b"aa", b"bb")) for seq in seqs}
        masks = masks_of_messages(("device", 7, seq, digest) for seq, digest in came.items())
        is_other = any(model.get(seq, digest) != digest for seq, digest in came.items())
        assert [chunks.has_other(key, mask) for key, mask in masks.items()] == [is_other]
        chunks.add(masks, 0)
        model |= came
    chunk = chunks["device", 7, 0]
    assert chunk.bits == sum(1 << seq for seq in model)
    assert chunk.digests == b"".join(model[seq] for seq in sorted(model))


def test_the_digests_that_were_touched_longest_ago_are_forgotten_first_and_their_numbers_stay() -> None:
    chunks = ChunkSet(100, 16 * DIGEST)
    for origin in [*"abcdefgh", "a", *"ijklmnop"]:
        forgotten = chunks.add(masks_of([(origin, 1, seq) for seq in range(1 + (origin == "p"))]), 0)
    assert forgotten == ([], [("b", 1, 0), ("c", 1, 0), ("d", 1, 0)])
    other = masks_of([(origin, 1, 0) for origin in "abe"], b"another")
    assert [chunks.has_other(key, mask) for key, mask in other.items()] == [True, False, True]
    assert [chunks.bits_of(key) for key in other] == [1, 1, 1]


async def test_what_a_message_was_is_known_over_saves_kills_and_restarts(tmp_path: Path) -> None:
    """With numbers in several slices and chunks, which are saved in any order."""
    seqs = [1, 2, 255, 256, 4095, 4096, 700, 3]
    async with opened(tmp_path / "old") as log:
        for seq in seqs[:5]:
            await store(log, [("device", 7, seq)])
        await saved(log)
        for seq in seqs[5:]:
            await store(log, [("device", 7, seq)])
        leave_as_killed(tmp_path / "old", tmp_path / "killed")
    for folder in (tmp_path / "old", tmp_path / "killed"):
        async with opened(folder) as log:
            assert {standing(log, ("device", 7, seq)) for seq in seqs} == {Standing.STORED}
            others = [masks_of([("device", 7, seq)], b"another") for seq in seqs]
            assert {log.seen.standing(masks) for masks in others} == {Standing.CONFLICT}


async def test_a_store_without_digests_takes_what_it_knows_for_the_same_and_learns(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await store(log, DEVICE[:2])
    with_commit(tmp_path, "DROP TABLE seen_digest")
    other = masks_of(DEVICE[:1], b"another")
    async with opened(tmp_path) as log:
        assert log.seen.standing(other) is Standing.STORED
        await store(log, DEVICE[2:3])
        assert [log.seen.standing(masks_of([one], b"another")) for one in DEVICE[1:3]] == [
            Standing.STORED,
            Standing.CONFLICT,
        ]


@pytest.mark.parametrize("mask", [1, 1 << CHUNK - 1, (1 << CHUNK) - 1])
def test_a_chunk_takes_less_than_a_kilobyte_of_memory_sparse_or_dense(mask: int) -> None:
    count = 500
    tracemalloc.start()
    try:
        chunks = ChunkSet(count, 0)  # the bytes of digests have a limit of their own
        for number in range(count):
            bits = mask >> 1 << 1 | 1
            digests = bytes(DIGEST * bits.bit_count())
            chunks.add({(f"device-{number}", 7, number): Mask(bits, digests)}, 1_760_000_000_000 + number)
        assert tracemalloc.get_traced_memory()[0] < 1000 * count
    finally:
        tracemalloc.stop()


IDENTITIES = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2), st.integers(1, 3 * CHUNK) | st.integers(4090, 4100)),
    max_size=60,
)


def split(identities: Iterable[Identity]) -> list[tuple[bytes, bytes, bytes]]:
    """As the fast path cuts them out of PUBLISHes."""
    found = [encode_identity(*identity).encode().split(b"/") for identity in identities]
    return [(epoch, seq, origin) for epoch, seq, origin in found]


@given(IDENTITIES)
def test_a_batch_has_the_bits_of_its_identities_unless_one_is_there_twice(identities: list[Identity]) -> None:
    is_each_once = len({*identities}) == len(identities)
    expected: Masks | None = masks_of(identities) if is_each_once else None
    digests = [content_digest("a", b"\0")] * len(identities)
    assert masks_of_batch(split(identities), digests) == expected


async def test_a_corrupt_row_is_set_aside_and_the_others_are_known(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await store(log, [("a", 1, 1), ("b", 1, 1)])
    with_commit(tmp_path, "UPDATE seen SET touched_ms = 5 WHERE origin = 'a'")
    with_commit(tmp_path, "UPDATE seen_digest SET digests = x'00' WHERE origin = 'b'")
    async with opened(tmp_path) as log:
        assert known(log, [("a", 1, 1), ("b", 1, 1)]) == [("b", 1, 1)]
    assert sorted(note.what for note in quarantine.notes_in(tmp_path)) == [
        "digests of messages that came over links, of origin 'b'",
        "identities that came over links, of origin 'a'",
    ]


def with_commit(folder: Path, statement: str) -> None:
    connection = sqlite3.connect(folder / "messages.sqlite")
    try:
        connection.execute(statement)
        connection.commit()
    finally:
        connection.close()


async def test_a_repaired_store_knows_what_came_before_and_all_that_comes_after(tmp_path: Path) -> None:
    """Positions of messages that are lost are used again: a start must not take them for noted."""
    async with opened(tmp_path) as log:
        Cursor(log, "route/central", ["#"])
        for identity in DEVICE[:20]:
            await store(log, [identity])
    with_commit(tmp_path, "UPDATE message_group SET crc = crc + 1 WHERE last > 10")
    repair(tmp_path, "gw", [])
    head = messages_in(tmp_path)[-1][0]
    assert stored(tmp_path, "SELECT position FROM seen") == [(head,)]
    async with opened(tmp_path) as log:
        assert known(log, DEVICE) == DEVICE[:20]
        await store(log, DEVICE[20:25])
        leave_as_killed(tmp_path, tmp_path / "killed")
    async with opened(tmp_path / "killed") as log:
        assert known(log, DEVICE) == DEVICE[:25]
