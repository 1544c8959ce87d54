"""Copies: the retained messages that came over links. None of them outlives the interest that brought it.

A copy is kept up to date as long as a filter that the other end was told matches its topic. When the last such filter
is withdrawn, the copy would become stale, so it is removed, and no message says so. It happens in the background::

    filter withdrawn ─► sweep waits ─► what was taken before is written ─► copies found, slice by slice ─► removed

If a filter is wanted again at once, the other end sends its retained messages anew, perhaps before the sweep is done.
So a sweep lets stay what has come since it began, and `Copies.is_outdated` says of what it has not removed yet that it
counts for nothing. A new subscriber waits for the sweeps (`LinkCopies.settle`), so that it gets no such copy.

While a link is down its other end goes by what it was told, and keeps what comes for this gateway. So copies stay as
well, and are compared with what is told when the link is up again. In mode active-passive the other end keeps nothing,
so the copies go with the connection.
"""

import asyncio
import logging
import sqlite3
import sys
from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain, islice

from gateway.filters.filter_tree import FilterTree
from gateway.loop.pace import Slice
from gateway.store import MessageLog, retained
from wire.topics import matches

AT_ONCE = 100  # filters in one search
FILTERS_MAX = 1000  # of a sweep; beyond it all copies are looked at
TIMES_MAX = 8  # in which a filter was told during a sweep; a copy that an earlier one has kept comes anew

logger = logging.getLogger(__name__)


class _Sweep:
    """Looks for copies below withdrawn filters, and removes the ones that no filter has kept all the time.

    Times count how often filters have changed since it was asked for. A copy was there at 0, or came later. The filters
    that matched its topic then keep it until they are withdrawn, and so does each filter that was told by that time.
    ``removes_all``: whatever is told, the copies that were there go.
    """

    def __init__(self, topic_filters: Iterable[str], *, removes_all: bool = False) -> None:
        self.topic_filters = dict.fromkeys(topic_filters)
        self.removes_all = removes_all
        self.is_done = asyncio.Event()
        self._now = 0
        self._came: dict[str, int] = {}  # topics of messages
        self._told: dict[str, int] = {}  # filters that are new
        self._withdrawn: FilterTree[tuple[tuple[int, int], ...]] = FilterTree()  # since when, until when

    def join(self, topic_filters: Iterable[str]) -> None:
        """Looks below other withdrawn filters as well; it has not begun yet."""
        self.topic_filters.update(dict.fromkeys(topic_filters))
        if len(self.topic_filters) > FILTERS_MAX:
            self.topic_filters = {retained.EVERY_TOPIC: None}

    def is_below(self, topic: str) -> bool:
        """Whether it looks at a topic."""
        below = self.topic_filters
        if topic in below or retained.EVERY_TOPIC in below:
            return True
        return any(matches(one, topic) for one in below if "+" in one or "#" in one)

    def tell(self, added: Iterable[str], removed: Iterable[str]) -> None:
        """Filters have been told, and others withdrawn."""
        self._now += 1
        if len(self._withdrawn) > FILTERS_MAX:  # what these alone have kept comes anew
            self._withdrawn = FilterTree()
        for topic_filter in removed:
            before = self._withdrawn.get(topic_filter) or ()
            times = self._told.pop(topic_filter, 0), self._now
            self._withdrawn.put(topic_filter, (*before, times)[-TIMES_MAX:])
        self._told.update(dict.fromkeys(added, self._now))

    def take(self, topic: str) -> None:
        """A message has come."""
        self._came[topic] = self._now

    def has_come(self, topic: str) -> bool:
        """Whether a message to a topic has come."""
        return topic in self._came

    def removes(self, topic: str, told: Iterable[str]) -> bool:
        """Whether it removes the copy of a topic, if there is one; ``told`` are the filters that match it now."""
        if self.removes_all:
            return topic not in self._came
        kept_until = self._came.get(topic, 0)
        told_since = min((self._told.get(one, 0) for one in told), default=sys.maxsize)
        for since, until in sorted(chain.from_iterable(times for _, times in self._withdrawn.match(topic))):
            if since <= kept_until < until:
                kept_until = until
        return told_since > kept_until


class Copies:
    """The copies of one link.

    Args:
        log: has the retained messages.
        publisher: the name that messages which come over the link have as their publisher.

    ``told`` returns those filters that match a topic which the other end was told; the link's end sets it.
    ``go_with_connection``: the link is of mode active-passive, so the other end sends all anew over each connection.
    """

    def __init__(self, log: MessageLog, publisher: str) -> None:
        self.told: Callable[[str], Iterable[str]] = lambda _: ()
        self.go_with_connection = False
        self._log = log
        self._publisher = publisher
        self._sweeps: list[_Sweep] = []  # that are not done, the oldest first
        self._task: asyncio.Task[None] | None = None
        self._has_taken = False

    def wants(self, topic: str) -> bool:
        """Whether a retained message of a topic becomes a copy."""
        return next(iter(self.told(topic)), None) is not None

    def tell(self, added: Iterable[str], removed: Iterable[str]) -> None:
        """The other end is told new filters, and right behind them that others are wanted no more."""
        for sweep in self._sweeps:
            sweep.tell(added, removed)
        if removed:
            self._begin(_Sweep(removed))

    def compare(self) -> None:
        """The link is up: what no filter matches that the other end has been told is removed."""
        self._begin(_Sweep([retained.EVERY_TOPIC]))

    def clear(self) -> None:
        """All copies are removed: the other end keeps nothing for this gateway, or sends everything anew."""
        self._begin(_Sweep([retained.EVERY_TOPIC], removes_all=True))

    def take(self, topic: str) -> None:
        """A retained message has come, and is handed to the store behind what was handed to it before."""
        self._has_taken = True
        for sweep in self._sweeps:
            sweep.take(topic)

    def note_kept(self, topic: str) -> None:
        """A retained message that has come is durable: its interest may have been withdrawn meanwhile."""
        if not self.wants(topic):
            self._begin(_Sweep([topic]))

    def is_outdated(self, topic: str) -> bool:
        """Whether the topic's copy, if there is one, is about to be removed."""
        return any(sweep.is_below(topic) and sweep.removes(topic, self.told(topic)) for sweep in self._sweeps)

    async def settle(self) -> None:
        """Returns when the sweeps are done that have begun or wait."""
        for sweep in list(self._sweeps):
            await sweep.is_done.wait()

    def close(self) -> None:
        """Stops; the next start compares anew."""
        if self._task is not None:
            self._task.cancel()
        self._end_all()

    def _end_all(self) -> None:
        for sweep in self._sweeps:
            sweep.is_done.set()
        self._sweeps.clear()

    def _begin(self, sweep: _Sweep) -> None:
        if not (self._has_taken or self._log.space.retained.topics):
            return
        if len(self._sweeps) > 1 and self._sweeps[-1].removes_all == sweep.removes_all:
            self._sweeps[-1].join(sweep.topic_filters)  # so that there are two at most, however often filters change
        else:
            self._sweeps.append(sweep)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._sweeps:
                await self._do(self._sweeps[0])
                self._sweeps.pop(0).is_done.set()
        except sqlite3.Error as error:
            self._end_all()
            logger.error("retained messages of %s that are no longer wanted stay: %s", self._publisher, error)
        finally:
            self._task = None

    async def _do(self, sweep: _Sweep) -> None:
        await self._log.submit([])  # what is deferred is written with it, and found below
        slice_ = Slice()
        searches = deque(
            retained.Search(one, sys.maxsize, publisher=self._publisher) for one in list(sweep.topic_filters)
        )
        while searches:
            for piece in await self._log.reader.find_retained(list(islice(searches, AT_ONCE)), 0):
                search = searches.popleft()
                outdated = []
                for topic, _ in piece.topics:
                    if slice_.is_over:
                        await slice_.give_way()
                    if sweep.removes(topic, self.told(topic)):
                        outdated.append(topic)
                # One that has come while the others were looked at is behind this in the store, or not removed.
                outdated = [one for one in outdated if not sweep.has_come(one) or sweep.removes(one, self.told(one))]
                if outdated:
                    await self._log.submit([retained.ForgetCopies(self._publisher, outdated)])
                if piece.end is not None:
                    searches.appendleft(search._replace(after=piece.end))


class LinkCopies:
    """The copies of all links.

    Args:
        log: has the retained messages.
    """

    def __init__(self, log: MessageLog) -> None:
        self._log = log
        self._by_publisher: dict[str, Copies] = {}

    def of(self, publisher: str) -> Copies:
        """Returns those of the link whose messages have this publisher."""
        found = self._by_publisher.get(publisher)
        if found is None:
            found = self._by_publisher[publisher] = Copies(self._log, publisher)
        return found

    async def settle(self) -> None:
        """Returns when the sweeps of all links are done that have begun."""
        for copies in list(self._by_publisher.values()):
            await copies.settle()

    def close(self) -> None:
        """Stops all sweeps."""
        for copies in self._by_publisher.values():
            copies.close()
