"""The messages that wait for one consumer, by origin."""

import random

import pytest

from gateway.message import Message
from gateway.store.consumers import quotas as counted
from gateway.store.consumers.delivery import Backlog
from gateway.store.consumers.quotas import OriginQuotas


def test_origins_beyond_the_bound_share_one_limit_until_none_of_their_messages_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counted, "ORIGINS_MAX", 2)
    quotas = OriginQuotas(1, None)
    first, second, third, fourth = (Message("t", b"", origin=origin) for origin in "abcd")
    for message in (first, second, third, fourth):
        quotas.add(message)
    assert [quotas.is_over(message) for message in (first, second, third, fourth)] == [False, False, True, True]
    assert quotas.excess == Backlog(1, 1)
    quotas.subtract(third)
    quotas.subtract(fourth)
    quotas.subtract(first)
    quotas.add(third)
    quotas.add(third)
    assert [quotas.is_over(message) for message in (second, third, fourth)] == [False, True, False]


def test_nothing_is_beyond_a_limit_once_everything_has_come_and_gone(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted, "ORIGINS_MAX", 5)
    chance = random.Random(seed)
    quotas, waiting = OriginQuotas(3, 40), []
    for _ in range(2000):
        if chance.random() < 0.5:
            waiting.append(Message("t", bytes(chance.randrange(20)), origin=chance.choice("abcdefgh")))
            quotas.add(waiting[-1])
        elif waiting:
            quotas.subtract(waiting.pop(0))
    for message in waiting:
        quotas.subtract(message)
    assert not any(quotas.is_over(Message("t", b"", origin=origin)) for origin in "abcdefgh")
    assert quotas.excess == Backlog()
