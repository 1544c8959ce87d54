"""Shares of the log: counted right, whatever is stored and forgotten, in little memory."""

import random
import tracemalloc

from gateway.message import Message
from gateway.store import Shares
from gateway.store.client_shares import BLOCK, BLOCKS_MAX

LARGEST = 300  # messages noted at once


def test_a_share_is_what_is_needed_and_a_part_of_a_block_more(seed: int) -> None:
    dice = random.Random(seed)
    shares, stored, needed_from = Shares(), list[str](), 0
    for _ in range(2000):
        some = [dice.choice("abc") for _ in range(dice.choice([1, 1, 5, LARGEST]))]
        stored += some
        shares.note(len(stored), [Message("t", b"12", publisher=name, owner=name) for name in some])
        if dice.random() < 0.5:
            needed_from = dice.randrange(needed_from, len(stored) + 1)
        shares.forget(needed_from)
        block = BLOCK + LARGEST + 4 * len(stored) // BLOCKS_MAX
        for name in "abc":
            share, needed = shares.of(name), stored[needed_from:].count(name)
            assert needed <= share.messages <= needed + block
            assert share.bytes == 3 * share.messages
    shares.forget(len(stored))
    assert [shares.of(name).messages for name in "abc"] == [0, 0, 0]


def test_memory_stays_flat() -> None:
    shares, sizes = Shares(), list[int]()
    tracemalloc.start()
    try:
        for position in range(1, 500_000, 100):
            shares.note(position, [Message("t", b"", publisher="a", owner="a")] * 100)
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert max(sizes) < 2_000 * BLOCKS_MAX  # bytes; as many blocks of 64 messages would take ten times that
    assert shares.of("a").messages == 500_000
    shares.forget(500_000)
    assert shares.of("a").messages == 0


def test_what_is_taken_out_of_the_log_counts_no_more() -> None:
    shares = Shares(begin=10)
    shares.note(200, [Message("t", b"12", publisher=name, owner=name) for name in "aab" * 60])
    shares.take_out(11, "a", 50, 150)
    shares.take_out(5, "b", 1, 3)  # from before it counted
    assert (shares.of("a").messages, shares.of("a").bytes) == (70, 210)
    assert shares.of("b").messages == 60
    shares.forget(200)
    assert shares.of("a").messages == 0


def test_an_owners_clients_count_together_until_the_last_of_their_messages_is_gone() -> None:
    """Messages of a client count for the owner that it had, so that each one is taken off where it was counted."""
    shares = Shares()
    shares.note(100, [Message("t", b"12", publisher=name, owner="user x") for name in "ab" * 50])
    shares.note(110, [Message("t", b"12", publisher="a", owner="user y")] * 10)
    assert [shares.of(owner).messages for owner in ("user x", "user y")] == [110, 0]
    shares.take_out(1, "b", 50, 149)
    assert (shares.of("user x").messages, shares.of("user x").bytes) == (60, 180)
    shares.forget(110)
    shares.note(111, [Message("t", b"12", publisher="a", owner="user y")])
    assert [shares.of(owner).messages for owner in ("user x", "user y")] == [0, 1]
