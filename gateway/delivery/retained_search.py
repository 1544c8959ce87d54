"""The search for the retained messages that new subscriptions match, of a session or of a neighbour behind a route."""

import time
from collections import deque
from collections.abc import AsyncIterator, Container, Iterable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from gateway.loop.pace import Slice
from gateway.message import Message
from gateway.store import MessageLog, retained

READ_MOST = 100  # retained messages in memory at once, while a condition looks at them
FILTERS_AT_ONCE = 100  # in one search


class Condition(Protocol):
    """What retained messages have to pass: a selector, or the conditions of a link."""

    def passes(self, message: Message, /) -> bool: ...


class Wanted(NamedTuple):
    """A subscription to which the retained messages are sent that were stored up to ``since``."""

    topic_filter: str
    qos: int
    since: int


class Found(NamedTuple):
    """A piece of what a filter matches; it has no numbers yet, and the store does not know it."""

    topic_filter: str
    owed: list[retained.Owed]
    is_last: bool


class RetainedSearch:
    """Finds what a session is owed, a piece at a time; other work uses the store in between.

    Args:
        log: has the retained messages.
        session: the session that is owed them.
        identifier: the subscription identifier, 0 for none.
        not_from: publishers whose messages it does not get.
        conditions: what the messages have to pass.
    """

    def __init__(
        self,
        log: MessageLog,
        session: str,
        identifier: int = 0,
        not_from: Container[str] = (),
        conditions: Sequence[Condition] = (),
    ) -> None:
        self._log = log
        self._session = session
        self._identifier = identifier
        self._not_from = not_from
        self._conditions = conditions
        self._given_up: set[str] = set()

    def give_up(self, topic_filter: str) -> None:
        """Finds nothing more for a filter."""
        self._given_up.add(topic_filter)

    async def find(self, wanted: Iterable[Wanted]) -> AsyncIterator[Found]:
        """Yields the pieces, filter by filter; at least one for each. Raises sqlite3.Error."""
        await self._log.submit([])  # deferred work is written with it, and found below
        waiting = deque(wanted)
        after = ""
        while waiting:
            now_ms = int(time.time() * 1000)
            searches = [
                retained.Search(one.topic_filter, one.since, "", self._not_from)
                for one in islice(waiting, FILTERS_AT_ONCE)
            ]
            searches[0] = searches[0]._replace(after=after)
            for piece in await self._log.reader.find_retained(searches, now_ms):
                topic_filter, qos, _ = waiting[0]
                topics = piece.topics
                for condition in self._conditions:
                    topics = await self._select(topics, condition)
                owed = [retained.Owed(0, self._session, *one, qos, self._identifier) for one in topics]
                yield Found(topic_filter, owed, piece.end is None)
                after = piece.end or ""
                if piece.end is None or topic_filter in self._given_up:
                    waiting.popleft()
                    after = ""

    async def _select(self, topics: list[tuple[str, int]], condition: Condition) -> list[tuple[str, int]]:
        """Returns those of the topics whose retained messages pass a condition."""
        positions = dict(topics)
        selected = []
        while positions:
            slice_ = Slice()
            for topic, found in (await self._log.reader.read_retained(list(positions)[:READ_MOST])).items():
                if slice_.is_over:
                    await slice_.give_way()
                position = positions.pop(topic)
                if found is not None and condition.passes(found[1]):
                    selected.append((topic, position))
        return selected
