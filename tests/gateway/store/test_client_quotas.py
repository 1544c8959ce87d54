"""ClientQuotas of the log: counted right, whatever is stored and forgotten, in little memory."""

import random
import tracemalloc

from gateway.message import Message
from gateway.store import ClientQuotas
from gateway.store.client_quotas import BLOCK, BLOCKS_MAX

LARGEST = 300  # messages noted at once


def test_a_share_is_what_is_needed_and_a_part_of_a_block_more(seed: int) -> None:
    dice = random.Random(seed)
    quotas, stored, needed_from = ClientQuotas(), list[str](), 0
    for _ in range(2000):
        some = [dice.choice("abc") for _ in range(dice.choice([1, 1, 5, LARGEST]))]
        stored += some
        quotas.note(len(stored), [Message("t", b"12", publisher=name, owner=name) for name in some])
        if dice.random() < 0.5:
            needed_from = dice.randrange(needed_from, len(stored) + 1)
        quotas.forget(needed_from)
        block = BLOCK + LARGEST + 4 * len(stored) // BLOCKS_MAX
        for name in "abc":
            quota, needed = quotas.of(name), stored[needed_from:].count(name)
            assert needed <= quota.messages <= needed + block
            assert quota.bytes == 3 * quota.messages
    quotas.forget(len(stored))
    assert [quotas.of(name).messages for name in "abc"] == [0, 0, 0]


def test_memory_stays_flat() -> None:
    quotas, sizes = ClientQuotas(), list[int]()
    tracemalloc.start()
    try:
        for position in range(1, 500_000, 100):
            quotas.note(position, [Message("t", b"", publisher="a", owner="a")] * 100)
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert max(sizes) < 2_000 * BLOCKS_MAX  # bytes; as many blocks of 64 messages would take ten times that
    assert quotas.of("a").messages == 500_000
    quotas.forget(500_000)
    assert quotas.of("a").messages == 0


def test_what_is_taken_out_of_the_log_counts_no_more() -> None:
    quotas = ClientQuotas(begin=10)
    quotas.note(200, [Message("t", b"12", publisher=name, owner=name) for name in "aab" * 60])
    quotas.take_out(11, "a", 50, 150)
    quotas.take_out(5, "b", 1, 3)  # from before it counted
    assert (quotas.of("a").messages, quotas.of("a").bytes) == (70, 210)
    assert quotas.of("b").messages == 60
    quotas.forget(200)
    assert quotas.of("a").messages == 0


def test_an_owners_clients_count_together_until_the_last_of_their_messages_is_gone() -> None:
    """Messages of a client count for the owner that it had, so that each one is taken off where it was counted."""
    quotas = ClientQuotas()
    quotas.note(100, [Message("t", b"12", publisher=name, owner="user x") for name in "ab" * 50])
    quotas.note(110, [Message("t", b"12", publisher="a", owner="user y")] * 10)
    assert [quotas.of(owner).messages for owner in ("user x", "user y")] == [110, 0]
    quotas.take_out(1, "b", 50, 149)
    assert (quotas.of("user x").messages, quotas.of("user x").bytes) == (60, 180)
    quotas.forget(110)
    quotas.note(111, [Message("t", b"12", publisher="a", owner="user y")])
    assert [quotas.of(owner).messages for owner in ("user x", "user y")] == [0, 1]
