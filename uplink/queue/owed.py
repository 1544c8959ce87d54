"""The retained messages that a route owes its next broker: the stored ones that new filters match.

New filters are all filters of a route that begins, filters new in its configuration, and filters that its neighbour
newly wants, which has no SUBSCRIBE with which it could ask. The route searches for them, and sends them beside the new
messages, as a session's `RetainedCursor` does. They are noted in the store, and before that the search is: a search
that a restart interrupts begins anew, for all filters, but what it has noted is owed once.
"""

import asyncio
from collections.abc import Callable, Collection, Container, Iterable
from itertools import islice

from gateway.delivery import RetainedCursor, RetainedSearch, Sender, Wanted
from gateway.links import Conditions
from gateway.store import MessageLog, retained
from uplink.queue.heard import HeardInterest

QOS = 2
FILTERS_AT_ONCE = 100  # searched for together
SIZE_MOST = 1024 * 1024  # bytes of memory for what is owed; beyond it the search waits


class OwedRetained:
    """What a route owes. It outlives the route's connections.

    Args:
        log: the gateway's store.
        session: the route's name in the tables of the store.
        interest: what the neighbour wants.
        configured: returns the filters of the route's configuration.
    """

    def __init__(
        self, log: MessageLog, session: str, interest: HeardInterest, configured: Callable[[], Collection[str]]
    ) -> None:
        self._log = log
        self._session = session
        self._interest = interest
        self._configured = configured
        rows = log.found.owed.pop(session, [])
        self._owed = {one: None for one in rows if one.topic != retained.EVERY_TOPIC}
        self._is_searching = len(self._owed) < len(rows)  # the store has a note of it
        self._size = sum(one.size for one in self._owed)
        self._wanted: dict[str, int] = {}  # filters to search for, with the head when they came to be wanted
        self._is_changed = asyncio.Event()
        if self._is_searching:
            self.want([*self._interest.subscriptions, *configured()])

    def want(self, topic_filters: Iterable[str]) -> None:
        """These filters are new, or the neighbour newly wants them; that is durable no later than they are."""
        if not self._log.space.retained.topics:
            return
        self._wanted.update(dict.fromkeys(topic_filters, self._log.head))
        self._is_changed.set()
        if self._wanted and not self._is_searching:
            self._is_searching = True
            self._log.defer(retained.note_search(self._session))

    def want_all(self) -> None:
        """The neighbour does not have what it had: all its filters count as new."""
        self.want(self._interest.subscriptions)

    def forget(self) -> None:
        """Owes nothing any more."""
        self._wanted.clear()
        self._owed.clear()
        self._size, self._is_searching = 0, False
        self._log.defer(retained.forget_all_owed(self._session))

    def cursor(self) -> RetainedCursor:
        """Returns what hands out what is owed, over one connection."""
        return RetainedCursor(self._log, self._owed, self, durable=True)

    def add(self, size: int) -> None:
        """Counts bytes of what is owed, as an account."""
        self._size += size
        if size < 0:
            self._is_changed.set()

    async def run(self, sender: Sender, not_from: Container[str], conditions: Conditions) -> None:
        """Searches for what is newly wanted and has it sent, for ever. Raises sqlite3.Error.

        Args:
            sender: sends over this connection.
            not_from: publishers whose messages do not go over it.
            conditions: what its messages have to pass.
        """
        assert sender.retained is not None
        search = RetainedSearch(self._log, self._session, 0, not_from, [conditions] if conditions else [])
        while True:
            self._is_changed.clear()
            while self._wanted and not self._interest.is_aside:
                some = list(islice(self._wanted.items(), FILTERS_AT_ONCE))
                for topic_filter, _ in some:
                    if topic_filter not in self._interest.subscriptions and topic_filter not in self._configured():
                        del self._wanted[topic_filter]
                sinces = dict(some)
                wanted = [Wanted(one, QOS, since) for one, since in some if one in self._wanted]
                sender.retained.expect()
                async for found in search.find(wanted):
                    await self._wait_for_room()
                    await self._owe(found.owed, sender)
                    if found.is_last and self._wanted.get(found.topic_filter) == sinces[found.topic_filter]:
                        del self._wanted[found.topic_filter]
            if self._is_searching and not self._wanted:
                self._is_searching = False
                self._log.defer(retained.forget_search(self._session))
            await self._is_changed.wait()

    async def _owe(self, found: list[retained.Owed], sender: Sender) -> None:
        assert sender.retained is not None
        noted = {(one.topic, one.position) for one in self._owed}
        found = [one for one in found if (one.topic, one.position) not in noted]
        if found:
            await self._log.submit([retained.owe(found)])
            self.add(sum(one.size for one in found))
        sender.retained.add(found)
        sender.send_retained()

    async def _wait_for_room(self) -> None:
        while self._size > SIZE_MOST:
            self._is_changed.clear()
            await self._is_changed.wait()
