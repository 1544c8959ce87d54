"""What is remembered by topic name has an end, and forgetting changes no answer."""

import sys
from dataclasses import dataclass

from gateway.store.consumers.audience import TOPICS_REMEMBERED, Audience
from gateway.subscriptions import Subscription
from gateway.topic_memory import NAME_SIZE_MAX, remember

LONG = "a" * (NAME_SIZE_MAX + 1)


def test_long_names_are_not_kept_and_the_others_only_so_many() -> None:
    known: dict[str, int] = {}
    remember(known, LONG, 1, 3)
    assert known == {}
    for number in range(5):
        remember(known, str(number), number, 3)
    assert known == {"3": 3, "4": 4}


@dataclass(eq=False)
class Taker:
    filters: dict[str, Subscription]


def test_a_client_that_makes_up_long_topic_names_takes_no_memory() -> None:
    subscription, audience = Subscription("#"), Audience[Taker]()
    audience.join(Taker({"#": subscription}), "#")
    before = sys.getrefcount(subscription)
    audience.takers(LONG)
    assert sys.getrefcount(subscription) == before
    for number in range(2 * TOPICS_REMEMBERED):
        audience.takers(str(number))
    assert sys.getrefcount(subscription) - before == TOPICS_REMEMBERED
