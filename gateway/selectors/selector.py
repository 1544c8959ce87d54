"""A selector: which messages pass."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from weakref import WeakValueDictionary

from gateway.message import Message
from gateway.selectors.fields import Fields
from gateway.selectors.parser import Parser

REMEMBERED = 8
WORK_MAX = 100_000
"""The most times of readings in a payload, multiplied by the size of all selectors that look at them together. A word
takes up to 0.7 µs, and other clients wait."""


class Selector:
    """A condition on messages. `parse_selector` makes it.

    Args:
        text: the condition, such as ``region = 'north' AND reading.temperature > 30``.

    ``size`` is the number of its words, with the characters of the patterns behind LIKE.

    Raises BadSelector: the text is none.
    """

    def __init__(self, text: str) -> None:
        parser = Parser(text)
        self.text = text
        self._is_fulfilled = parser.parse()
        self.size = parser.size
        self._needs_readings = parser.needs_readings

    def passes(self, message: Message, beside: int = 0) -> bool:
        """Whether a message passes: the condition is true, and neither false nor NULL.

        Readings that a payload has for several times are looked at time by time: the message passes if the condition is
        true for one of them. A payload with too many times for WORK_MAX has no readings.

        Args:
            message: the message.
            beside: the size of the other selectors that look at it for the same client.
        """
        fields = Fields(message)
        if not self._needs_readings:
            return self._is_fulfilled(fields) is True
        moments = fields.moments()
        if len(moments) * (self.size + beside) > WORK_MAX:
            moments = [{}]
        return any(self._is_fulfilled(fields.at(moment)) is True for moment in moments)


def passing(selectors: Sequence[Selector], message: Message) -> Iterator[bool]:
    """Yields of each of the selectors that one client has for a topic name whether a message passes."""
    size = sum(one.size for one in selectors)
    for one in selectors:
        yield one.passes(message, size - one.size)


_in_use: WeakValueDictionary[str, Selector] = WeakValueDictionary()


@lru_cache(REMEMBERED)
def parse_selector(text: str) -> Selector:
    """Returns a selector; all that use the same text share one. It takes up to 7 µs a character. Raises BadSelector."""
    return _in_use.get(text) or _in_use.setdefault(text, Selector(text))
