"""Leaves out messages that a rule's condition, its count or its dead band does not let through."""

import math
from collections import OrderedDict
from typing import Any

from gateway.routes import Message
from uplink.shape.json_path import elements_of, find
from uplink.shape.rules import DeadBand, Rule, Rules

TOPICS_MAX = 10_000
"""The most topic names with remembered values; the name that was longest without a message is forgotten first."""
NUMBERS_MAX = 16
"""The most series of numbers remembered for each topic name; a message with more of them is sent."""


class _Topic:
    """What is remembered of one topic name: how many messages ``every`` has counted, and the numbers sent last.

    ``sent_ms`` is when the message with these was accepted; ``numbers`` has the hashes of the series' names as keys, as
    publishers choose names.
    """

    __slots__ = ("counted", "numbers", "sent_ms")

    def __init__(self) -> None:
        self.counted = 0
        self.sent_ms = 0
        self.numbers: dict[int, float] = {}


class Selector:
    """Decides for a route's messages, in their order, which it leaves out. Each message is to be asked for once.

    What it remembers is lost when the process ends: then the next message of each topic name is as the first one. Its
    memory is bounded, whatever topic names and payloads there are.

    Args:
        rules: the route's rules.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._topics: OrderedDict[int, _Topic] = OrderedDict()  # by the hashes of their names

    def leaves_out(self, message: Message) -> bool:
        """Whether the route does without a message."""
        rule = self._rules.of(message.topic)
        if rule is None or not rule.selects:
            return False
        if rule.where is not None and not rule.where.passes(message):
            return True
        return (rule.every > 1 or rule.dead_band is not None) and self._is_repeated(rule, message)

    def _is_repeated(self, rule: Rule, message: Message) -> bool:
        topic = self._topic(message.topic)
        if rule.every > 1:
            topic.counted += 1
            if topic.counted % rule.every != 1:
                return True
        if rule.dead_band is None:
            return False
        return _is_within(rule.dead_band, topic, message.received_ms, elements_of(message.payload))

    def _topic(self, name: str) -> _Topic:
        key = hash(name)
        topic = self._topics.get(key)
        if topic is None:
            topic = self._topics[key] = _Topic()
            if len(self._topics) > TOPICS_MAX:
                self._topics.popitem(last=False)
        else:
            self._topics.move_to_end(key)
        return topic


def _is_within(band: DeadBand, topic: _Topic, received_ms: int, elements: list[Any] | None) -> bool:
    """Whether all numbers of a message are within the band; otherwise it is sent, and its numbers are remembered."""
    numbers = _numbers(band, elements or ())
    if not numbers or len(numbers) > NUMBERS_MAX:
        return False
    is_silent = 0 <= received_ms - topic.sent_ms < band.heartbeat_ms  # not if the clock was set back
    if is_silent and all(_is_near(band, topic.numbers.get(name), found) for name, found in numbers.items()):
        return True
    topic.sent_ms = received_ms
    topic.numbers.update((name, found[-1]) for name, found in numbers.items())
    if len(topic.numbers) > NUMBERS_MAX:
        topic.numbers = {name: found[-1] for name, found in numbers.items()}
    return False


def _is_near(band: DeadBand, sent: float | None, found: list[float]) -> bool:
    return sent is not None and all(abs(number - sent) < band.width for number in found)


def _numbers(band: DeadBand, elements: Any) -> dict[int, list[float]]:
    """Returns the numbers at the band's path by the hash of their series' name, which SenML has as ``n``."""
    numbers: dict[int, list[float]] = {}
    for element in elements:
        number = find(element, band.path)
        if isinstance(number, int | float) and not isinstance(number, bool):
            name = element.get("n", "") if isinstance(element, dict) else ""
            numbers.setdefault(hash(name) if isinstance(name, str) else 0, []).append(_float(number))
    return numbers


def _float(number: int | float) -> float:
    try:
        return float(number)
    except OverflowError:  # an integer of more than 308 digits; its message is sent, as infinity is far from all
        return math.inf
