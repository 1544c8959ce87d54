"""Conditions on the messages that go over a link: the selectors of both ends, by topic filter."""

from collections.abc import Iterable

from gateway.config.network import SelectConfig
from gateway.message import Message
from gateway.selectors import Selector, parse_selector, passing
from gateway.topic_memory import remember
from wire.topics import matches

TOPICS_REMEMBERED = 4096


class Conditions:
    """Selectors by topic filter. A message has to pass those of all filters that its topic name matches.

    Args:
        configs: the conditions of both ends.
    """

    def __init__(self, *configs: Iterable[SelectConfig]) -> None:
        self._selectors = [(one.topic, parse_selector(one.select)) for conditions in configs for one in conditions]
        self._by_topic: dict[str, tuple[Selector, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._selectors)

    def passes(self, message: Message) -> bool:
        """Whether a message may go over the link."""
        return not self._selectors or all(passing(self._of(message.topic), message))

    def concern(self, topic: str) -> bool:
        """Whether messages of a topic have to pass any."""
        return bool(self._selectors and self._of(topic))

    def _of(self, topic: str) -> tuple[Selector, ...]:
        found = self._by_topic.get(topic)
        if found is None:
            found = tuple(one for topic_filter, one in self._selectors if matches(topic_filter, topic))
            remember(self._by_topic, topic, found, TOPICS_REMEMBERED)
        return found
