"""The topic filters of the session that a neighbour keeps for a route: asked for, answered, and refused."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from gateway.links import FilterSum, LinkSettings
from uplink.proxy.requests import Asked


class SessionFilters:
    """What the session has. It outlives the route's connections, as the session does.

    ``answered`` are the filters that the neighbour has granted, None while they are not known. ``expected`` are the
    same when all requests are answered. ``refused`` has the filters that it has not granted, with the reasons; they are
    not asked for again over this connection.
    """

    def __init__(self) -> None:
        self.answered: dict[str, None] | None = None
        self.expected: dict[str, None] = {}
        self.refused: dict[str, str] = {}
        self._said: dict[str, None] = {}  # those of which the CONNECT has the sum
        self._unanswered: list[Asked] = []  # over the last connection

    def say(self, wanted: dict[str, None]) -> FilterSum:
        """Returns the sum of the filters for a CONNECT; ``wanted`` stand for filters that are not known."""
        self._said = wanted if self.answered is None else dict(self.answered)
        return FilterSum(self._said)

    def begin(self, theirs: LinkSettings | None, noted: Iterable[str]) -> bool:
        """A connection begins; returns whether it is known which filters the session has.

        Args:
            theirs: the settings of the gateway at the other end, None for an ordinary broker.
            noted: the filters that the session of an ordinary broker may have. After a start all of them are asked for
                again.
        """
        self.refused.clear()
        is_known = True
        if theirs is None or theirs.asked == FilterSum().value:
            had, self.answered = self.answered or {}, dict.fromkeys(() if theirs else noted)
            self.expected = {one: None for one in self.answered if one in had}
        else:
            is_known = self._find(theirs.asked)
            self.expected = dict(self.answered or {})
        return is_known

    def _find(self, value: tuple[int, int]) -> bool:
        """Finds the filters with this sum: the said ones, changed by some of the requests without an answer."""
        found, total = self._said, FilterSum(self._said)
        for request in [Asked([], True), *self._unanswered]:
            for topic_filter in request.topic_filters:
                if request.is_subscribe and topic_filter not in found:
                    total.add(topic_filter)
                    found[topic_filter] = None
                elif not request.is_subscribe and topic_filter in found:
                    total.remove(topic_filter)
                    del found[topic_filter]
            if total.value == value:
                self.answered = found
                return True
        self.answered = {}
        return False

    def end(self, unanswered: list[Asked]) -> None:
        """The connection has ended with these requests unanswered."""
        self._unanswered = unanswered

    @property
    def in_doubt(self) -> list[str]:
        """The filters of the requests that were not answered over the last connection."""
        return list(dict.fromkeys(chain.from_iterable(request.topic_filters for request in self._unanswered)))

    def ask(self, added: Sequence[str], removed: Sequence[str]) -> list[str]:
        """These filters are about to be asked for, and ended; returns the ones to ask for."""
        added = [one for one in added if one not in self.refused]
        self.expected.update(dict.fromkeys(added))
        for topic_filter in removed:
            self.expected.pop(topic_filter, None)
        return added

    def note_answer(self, asked: Asked, granted: Sequence[str], refused: Mapping[str, str]) -> None:
        """The neighbour has granted some filters of a request; ``refused`` has the reasons for the others."""
        if self.answered is None or asked.ends_others:
            return
        if asked.is_subscribe:
            self.answered.update(dict.fromkeys(granted))
            for topic_filter in asked.topic_filters:
                if topic_filter not in self.answered:
                    self.refused[topic_filter] = refused[topic_filter]
                    self.expected.pop(topic_filter, None)
        else:
            for topic_filter in granted:
                self.answered.pop(topic_filter, None)

    def all(self) -> list[str]:
        """Returns the filters that the session may have."""
        return list((self.answered or {}) | self.expected)
