"""The messages that wait for one consumer, by origin."""

import random

import pytest

from gateway.message import Message
from gateway.store.consumers import shares as counted
from gateway.store.consumers.delivery import Backlog
from gateway.store.consumers.shares import OriginShares


def test_origins_beyond_the_bound_share_one_limit_until_none_of_their_messages_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counted, "ORIGINS_MAX", 2)
    shares = OriginShares(1, None)
    first, second, third, fourth = (Message("t", b"", origin=origin) for origin in "abcd")
    for message in (first, second, third, fourth):
        shares.add(message)
    assert [shares.is_over(message) for message in (first, second, third, fourth)] == [False, False, True, True]
    assert shares.excess == Backlog(1, 1)
    shares.subtract(third)
    shares.subtract(fourth)
    shares.subtract(first)
    shares.add(third)
    shares.add(third)
    assert [shares.is_over(message) for message in (second, third, fourth)] == [False, True, False]


def test_nothing_is_beyond_a_limit_once_everything_has_come_and_gone(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted, "ORIGINS_MAX", 5)
    chance = random.Random(seed)
    shares, waiting = OriginShares(3, 40), []
    for _ in range(2000):
        if chance.random() < 0.5:
            waiting.append(Message("t", bytes(chance.randrange(20)), origin=chance.choice("abcdefgh")))
            shares.add(waiting[-1])
        elif waiting:
            shares.subtract(waiting.pop(0))
    for message in waiting:
        shares.subtract(message)
    assert not any(shares.is_over(Message("t", b"", origin=origin)) for origin in "abcdefgh")
    assert shares.excess == Backlog()
