"""A selector: which messages pass."""

from functools import lru_cache

from gateway.message import Message
from gateway.selectors.fields import Fields
from gateway.selectors.parser import Parser

REMEMBERED = 8


class Selector:
    """A condition on messages. `parse_selector` makes it.

    Args:
        text: the condition, such as ``region = 'north' AND reading.temperature > 30``.

    Raises BadSelector: the text is none.
    """

    def __init__(self, text: str) -> None:
        parser = Parser(text)
        self.text = text
        self._is_fulfilled = parser.parse()
        self._needs_readings = parser.needs_readings

    def passes(self, message: Message) -> bool:
        """Whether a message passes: the condition is true, and neither false nor NULL.

        Readings that a payload has for several times are looked at time by time: the message passes if the condition is
        true for one of them.
        """
        fields = Fields(message)
        if not self._needs_readings:
            return self._is_fulfilled(fields) is True
        return any(self._is_fulfilled(fields.at(moment)) is True for moment in fields.moments())


@lru_cache(REMEMBERED)
def parse_selector(text: str) -> Selector:
    """Returns a selector. The filters of a SUBSCRIBE, which come one after the other, share one. Raises BadSelector."""
    return Selector(text)
