"""What the two ends of a route want of each other. It is kept in the store, as a session's subscriptions are."""

import asyncio
import dataclasses
from collections.abc import Generator, Iterable
from typing import Any

from gateway.links import Announced, Changes, Heard, Mark, Network, Side, decode_mark
from gateway.routes import Subscription
from gateway.store import MessageLog, sessions

NEVER_EXPIRES_S = 0xFFFF_FFFF
QOS = 2


class HeardInterest:
    """The topic filters that a neighbour wants, and which of them the route's cursor gets as subscriptions.

    Args:
        log: the gateway's store.
        session: the route's name in the table of sessions.
        network: told what is wanted, None where the route has no gateway around it.

    ``subscriptions`` are by topic filter. ``side`` is the link's, None while the route has no neighbour. ``is_aside``:
    the link closes a circle, so that what the neighbour wants counts for nothing. ``unwritten`` counts the changes that
    are to be written with the next commits.
    """

    def __init__(self, log: MessageLog, session: str, network: Network | None) -> None:
        self._log = log
        self._session = session
        self._network = network
        stored = log.found.sessions.pop(session, None)
        self.subscriptions: dict[str, Subscription] = {} if stored is None else stored.subscriptions
        for topic_filter, one in self.subscriptions.items():
            if one.since > log.head:  # a new log begins its positions anew
                self.subscriptions[topic_filter] = dataclasses.replace(one, since=log.head)
        mark = "" if stored is None or stored.description is None else stored.description.link
        self._heard = Heard(self.subscriptions, decode_mark(mark))
        self._is_stored = stored is not None
        self._rows: dict[str, Subscription | None] = {}  # changed, and not deferred yet
        self.unwritten = 0
        self.side: Side | None = None
        self.is_aside = False

    @property
    def mark(self) -> str:
        """How far the neighbour was heard."""
        return self._heard.mark.encode()

    def give_side(self, side: Side | None) -> None:
        """Counts what the neighbour wants for a side from now on; None: the route has no neighbour now."""
        self.set_aside(is_aside=False)
        before, self.side = self.side, side
        if self._network is not None and side != before:
            if side is not None:
                for topic_filter in self.subscriptions:
                    self._network.want(topic_filter, side)
            if before is not None:
                self._network.leave(self.subscriptions, before)

    def set_aside(self, *, is_aside: bool) -> None:
        """What the neighbour wants counts for nothing from now on, or counts again."""
        if is_aside == self.is_aside or self._network is None or self.side is None:
            return
        self.is_aside = is_aside
        if is_aside:
            self._network.leave(self.subscriptions, self.side)
            return
        for topic_filter in self.subscriptions:
            self._network.want(topic_filter, self.side)

    def forget(self) -> None:
        """Forgets what the neighbour wants, also in the store."""
        self.give_side(None)
        if self._is_stored:
            self._log.defer(sessions.remove_session(self._session))
        self._is_stored = False
        self.subscriptions = {}
        self._heard = Heard(self.subscriptions)

    def begin(self) -> None:
        """A new connection begins."""
        self._heard.begin()

    def take(self, payload: bytes) -> Announced | None:
        """Takes in a payload; returns the announcement that ends with it. Raises BadAnnouncement."""
        return self._heard.take(payload)

    def changes(self, announced: Announced) -> Generator[None, None, Changes]:
        """Finds out what an announcement changes, step by step. Raises BadAnnouncement."""
        return self._heard.changes(announced)

    def add(self, topic_filters: Iterable[str], position: int) -> list[Subscription]:
        """The neighbour newly wants filters, and no message up to the position waits for it; returns its subscriptions.

        ``save`` has to follow before any message is stored.
        """
        added = [self._subscription(topic_filter, position) for topic_filter in topic_filters]
        rows = {one.topic_filter: one for one in added}
        self.subscriptions.update(rows)
        self._rows.update(rows)
        return added

    def remove(self, topic_filters: Iterable[str]) -> None:
        """The neighbour wants filters no more; ``save`` has to follow before any message is stored."""
        for topic_filter in topic_filters:
            del self.subscriptions[topic_filter]
            self._rows[topic_filter] = None

    def save(self, mark: Mark) -> None:
        """Writes what has changed no later than any message that is stored from now on, with the mark that is heard.

        Without a mark only a part of an announcement is followed. A start after a kill then asks for all of it.
        """
        if not self._rows and mark == self._heard.mark:
            return
        self._heard.mark, self._is_stored = mark, True
        description = sessions.SessionDescription(NEVER_EXPIRES_S, None, link=self.mark)
        self._log.defer(sessions.SaveSession(self._session, {**self._rows, "": description}))
        self.unwritten += len(self._rows)
        self._rows = {}

    def _subscription(self, topic_filter: str, position: int) -> Subscription:
        head = self._log.head
        if self._network is None or self.side is None:
            return Subscription(topic_filter, QOS, head, None, True)
        since, earlier = self._network.succeed(topic_filter, self.subscriptions, position, head)
        return Subscription(topic_filter, QOS, since, None, True, earlier=earlier)

    def count(self, added: Iterable[str], removed: Iterable[str]) -> None:
        """Counts filters that the neighbour newly wants, and no longer counts others; ``tell`` has to follow."""
        if self._network is None or self.side is None or self.is_aside:
            return
        for topic_filter in added:
            self._network.want(topic_filter, self.side)
        for topic_filter in removed:
            self._network.want_no_more(topic_filter, self.side)

    def tell(self) -> None:
        """Tells the other neighbours what has changed."""
        if self._network is not None:
            self._network.tell()


class NotedFilters:
    """Topic filters of a route that the store keeps for the next start.

    Args:
        log: the gateway's store.
        session: a name in the table of sessions.
    """

    def __init__(self, log: MessageLog, session: str) -> None:
        self._log = log
        self._session = session
        stored = log.found.sessions.pop(session, None)
        self.filters: dict[str, None] = {} if stored is None else dict.fromkeys(stored.subscriptions)

    def add(self, topic_filters: Iterable[str], *, is_soon: bool = False) -> None:
        """Notes filters. They are durable with the next commit, which is made soon if that is asked for: the requests
        do not wait for it, and no message overtakes them.
        """
        added = [one for one in topic_filters if one not in self.filters]
        if not added:
            return
        self.filters.update(dict.fromkeys(added))
        rows = {one: Subscription(one, QOS) for one in added} | {"": sessions.SessionDescription(NEVER_EXPIRES_S, None)}
        self._log.defer(sessions.SaveSession(self._session, rows))
        if is_soon:
            self._log.submit([]).add_done_callback(_ignore)

    def remove(self, topic_filters: Iterable[str]) -> None:
        """Forgets filters, as far as they are noted."""
        removed = [one for one in dict.fromkeys(topic_filters) if one in self.filters]
        for topic_filter in removed:
            del self.filters[topic_filter]
        if removed:
            rows = dict.fromkeys(removed)
            self._log.defer(
                sessions.SaveSession(self._session, rows) if self.filters else sessions.remove_session(self._session)
            )


def _ignore(done: "asyncio.Future[list[Any]]") -> None:
    """What could not be written is asked for all the same; the log says why it failed."""
    if not done.cancelled():
        done.exception()
