"""What a route keeps behind its place, against a plain set of identities, over restarts and kills at any moment."""

import random
from pathlib import Path

from gateway.message import Message
from gateway.store import Kept, MessageLog, Part
from tests.gateway.store.support import (
    append_each,
    batch_of,
    leave_as_killed,
    messages_in,
    opened,
    random_batch,
    stored,
)

CONSUMER = "route/central"
Identity = tuple[str, int, int]


class Receipts:
    """What a test says is settled, and what the route hands on."""

    def __init__(self, log: MessageLog) -> None:
        self.acknowledged = 0
        self.settled: set[Identity] = set()
        self._log = log

    def hands_on(self, topic: str, _part: Part) -> bool:
        return topic != "local"

    def settled_up_to(self, origin: str, epoch: int, seq: int) -> int:
        while (origin, epoch, seq) in self.settled:
            seq += 1
        return seq - 1


def kept_by(log: MessageLog, receipts: Receipts) -> Kept:
    kept = log.kept.begin(CONSUMER, log.head)
    kept.claims = receipts
    return kept


def part(dice: random.Random) -> Message | object:
    if dice.random() < 0.4:
        return random_batch(dice, dice.randint(1, 6), ("mine/a", "local"))
    if dice.random() < 0.3:
        return batch_of([("mine/a", b"%d" % number) for number in range(dice.randint(1, 5))])
    if dice.random() < 0.5:
        return Message(dice.choice(("mine/a", "local")), b"x", dice.choice((0, 1)))
    return Message("mine/a", b"x", 1, origin="device-9", epoch=9, seq=dice.randint(1, 9))


def is_held(message: Message, receipts: Receipts) -> bool:
    """Whether a message has to stay, by the plain rule."""
    identity = message.origin, message.epoch, message.seq
    return message.topic != "local" and bool(message.origin) and identity not in receipts.settled


async def test_the_place_is_always_before_the_first_message_that_is_not_settled(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    for run in range(6):
        folder = tmp_path / str(run)
        async with opened(folder) as log:
            kept_by(log, Receipts(log))
        settled: set[Identity] = set()
        for _ in range(4):
            async with opened(folder) as log:
                receipts = Receipts(log)
                receipts.settled = settled
                kept = kept_by(log, receipts)
                for _ in range(dice.randint(1, 6)):
                    await log.submit([part(dice) for _ in range(dice.randint(1, 4))])  # type: ignore[misc]
                    receipts.acknowledged = dice.randint(kept.position, log.head)
                    found = [one for one in await log.read(0, 10_000) if one[0] > kept.position]
                    for _, message in found:
                        if dice.random() < 0.6:
                            settled.add((message.origin, message.epoch, message.seq))
                    await kept.pass_settled(receipts.acknowledged)
                    up_to = receipts.acknowledged
                    stay = [at for at, one in found if is_held(one, receipts) and at <= up_to]
                    held = [at for at in stay if at > kept.position]
                    assert held == stay, "it has passed messages that are not settled"
                    assert kept.position == (held[0] - 1 if held else up_to)
                    assert [at async for at, _ in kept.unsettled(kept.position, up_to)] == held
                    last = await kept.last_stretch(kept.position, up_to)
                    theirs = [at for at, one in found if one.topic != "local" and one.origin]
                    theirs = [at for at in theirs if kept.position < at <= up_to]
                    assert (None if last is None else last.end) == (theirs[-1] if theirs else None)


async def test_a_kill_leaves_a_place_that_is_not_behind_what_was_passed_and_what_is_kept(
    tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    async with opened(tmp_path / "store") as log:
        receipts = Receipts(log)
        kept = kept_by(log, receipts)
        for number in range(8):
            await log.submit([Message("mine/a", b"%d" % count) for count in range(dice.randint(1, 9))])
            receipts.acknowledged = log.head
            for position, message in await log.read(kept.position, 4):
                if position <= kept.position + 3:
                    receipts.settled.add((message.origin, message.epoch, message.seq))
            await kept.pass_settled(log.head)
            if dice.random() < 0.3:
                await kept.give_up(min(log.head, kept.position + 1))
            at, copy = kept.position, tmp_path / f"killed-{number}"
            leave_as_killed(tmp_path / "store", copy)
            async with opened(copy) as after:
                again = Receipts(after)
                place = kept_by(after, again).position
                assert place <= at
                assert place >= min(position for position, _ in messages_in(copy)) - 1


async def test_what_is_given_up_leaves_its_range_once_however_often_the_gateway_is_killed(tmp_path: Path) -> None:
    async with opened(tmp_path / "store") as log:
        receipts = Receipts(log)
        kept = kept_by(log, receipts)
        await log.submit([Message("mine/a", b"%d" % number) for number in range(10)])
        receipts.acknowledged = log.head
        epoch = log.routes.own[1]
        receipts.settled = {("gw", epoch, 3), ("gw", epoch, 4)}
        assert await kept.give_up(6) == 4
        leave_as_killed(tmp_path / "store", tmp_path / "killed")
    async with opened(tmp_path / "killed") as log:
        receipts = Receipts(log)
        kept = kept_by(log, receipts)
        receipts.acknowledged = log.head
        assert kept.position == 6
        await kept.give_up(8)
    query = "SELECT consumer, sum(messages) FROM dropped WHERE reason = 'unproven' GROUP BY consumer"
    assert stored(tmp_path / "killed", query) == [(CONSUMER, 6)]


async def test_nothing_behind_the_place_is_deleted_although_no_consumer_needs_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        receipts = Receipts(log)
        kept = kept_by(log, receipts)
        await append_each(log, [Message("mine/a", b"%d" % number) for number in range(10)])
        receipts.acknowledged = log.head
        receipts.settled = {("gw", log.routes.own[1], number) for number in range(1, 5)}
        await kept.pass_settled(log.head)
    assert [position for position, _ in messages_in(tmp_path)] == [5, 6, 7, 8, 9, 10]
    async with opened(tmp_path) as log:
        log.kept.end(CONSUMER)
    async with opened(tmp_path) as log:
        await log.submit([Message("mine/a", b"last")])
    assert [position for position, _ in messages_in(tmp_path)] == [11]


async def test_a_store_that_has_to_make_room_gives_up_only_what_is_acknowledged(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        receipts = Receipts(log)
        kept = kept_by(log, receipts)
        await log.submit([Message("mine/a", b"%d" % number) for number in range(10)])
        assert not await log.kept.give_way()
        receipts.acknowledged = 7
        assert await log.kept.give_way()
        assert kept.position == 7
        assert not await log.kept.give_way()
