"""SUBSCRIBE and UNSUBSCRIBE: saved, then answered; then the retained messages that a subscription matches."""

import sqlite3
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

from gateway.access import Permissions
from gateway.message import Message
from gateway.pace import Slice
from gateway.session import Session
from gateway.store import retained
from gateway.store.delivery import Grant
from gateway.store.retained import Owed
from wire.packets import RETAIN_IF_NEW, RETAIN_NEVER, Subscribe, Unsubscribe
from wire.properties import SUBSCRIPTION_IDENTIFIER
from wire.reasons import NO_SUBSCRIPTION_EXISTED, NOT_AUTHORIZED, QUOTA_EXCEEDED, SUCCESS, UNSPECIFIED_ERROR
from wire.topics import matches

if TYPE_CHECKING:
    from gateway.broker import Broker


FILTERS_AT_ONCE = 100  # each is held against all access rules, and others have their turns in between


class Subscribing:
    """Changes one client's subscriptions.

    Args:
        broker: where they are kept.
        session: the client's session.
        permissions: what it may subscribe to.
    """

    def __init__(self, broker: "Broker", session: Session, permissions: Permissions) -> None:
        self._broker = broker
        self._session = session
        self._permissions = permissions
        self._connection = session.connection

    async def subscribe(self, packet: Subscribe) -> tuple[list[int], list[Owed]]:
        """Returns the reason codes, and what is to be sent behind them. Raises sqlite3.Error."""
        identifier = packet.properties.get(SUBSCRIPTION_IDENTIFIER, [0])[0]
        codes = []
        searches: dict[str, _Search] = {}
        slice_ = Slice()
        for number, (topic_filter, options) in enumerate(packet.filters, 1):
            if number % FILTERS_AT_ONCE == 0 or slice_.is_over:
                await slice_.give_way()
                if self._session.connection is not self._connection:
                    break  # no client waits for the answer, and the session may have ended
            if not self._permissions.may_subscribe(topic_filter):
                codes.append(NOT_AUTHORIZED)
                continue
            before = self._session.subscription(topic_filter)
            most = self._broker.config.limits.subscriptions
            if before is None and not self._broker.subscribers.fits(self._session, topic_filter, most):
                codes.append(QUOTA_EXCEEDED)
                continue
            is_new = self._broker.subscribers.subscribe(self._session, topic_filter, options, identifier)
            codes.append(options & 3)
            if not is_new and self._session.subscription(topic_filter) != before:
                self._broker.limits.count_again([self._session.cursor])
            if _wants_retained(topic_filter, options, is_new):
                is_new |= topic_filter in searches and searches[topic_filter].is_new
                searches[topic_filter] = _Search(options & 3, is_new, self._broker.log.head)
        owed: list[Owed] = []
        try:
            refused = await self._find_all(searches, identifier, owed)
            await self._broker.sessions.save(self._session.client_id)
        except sqlite3.Error:
            self._give_back(owed, 0)
            raise
        if self._has_ended():
            self._give_back(owed, 0)
        for place in range(len(codes) if refused else 0):
            if packet.filters[place][0] in refused:
                codes[place] = QUOTA_EXCEEDED
        return codes, owed

    def _has_ended(self) -> bool:
        return self._broker.sessions.get(self._session.client_id) is not self._session

    async def _find_all(self, searches: dict[str, "_Search"], identifier: int, owed: list[Owed]) -> set[str]:
        """Finds the retained messages that filters match; returns the filters of which there are too many to keep."""
        refused: set[str] = set()
        if searches:
            await self._broker.log.submit([])  # with it, what was put off is where it is found
        for topic_filter, search in searches.items():
            before = len(owed)
            if await self._find(topic_filter, search, identifier, owed):
                continue
            self._give_back(owed, before)
            if not self._has_ended():
                refused.add(topic_filter)
                if search.is_new:
                    self._session.note_change(topic_filter)
                    self._broker.subscribers.unsubscribe(self._session, topic_filter)
        return refused

    async def _find(self, topic_filter: str, search: "_Search", identifier: int, owed: list[Owed]) -> bool:
        """Finds them a piece at a time, past which everybody else's messages go through the same store.

        False, and some are left out, where they are too many to keep or the session has ended.
        """
        log, account, now_ms = self._broker.log, self._session.account, int(time.time() * 1000)
        after: str | None = ""
        while after is not None:
            topics, after = await log.find_retained(topic_filter, after, search.since, now_ms)
            piece = [Owed(0, self._session.client_id, *one, search.qos, identifier) for one in topics]
            size = sum(one.size for one in piece)
            if not account.fits(size) or self._has_ended():
                return False
            account.add(size)
            try:
                if piece and self._session.durable and search.qos:
                    await log.submit([retained.owe(piece)])
            except sqlite3.Error:
                account.add(-size)  # and their numbers are not theirs
                raise
            owed += piece
        return True

    def _give_back(self, owed: list[Owed], first: int) -> None:
        """What was found from one on is not sent, and nothing is kept for it."""
        given_back = owed[first:]
        del owed[first:]
        self._session.account.add(-sum(one.size for one in given_back))
        if numbers := [one.number for one in given_back if one.number]:
            self._broker.log.later(retained.settle(numbers))

    async def announced(self, packet: Subscribe, codes: list[int]) -> AsyncIterator[tuple[Message, Grant]]:
        """Yields what the gateway says of itself and subscriptions match that were granted, each filter once."""
        identifier = packet.properties.get(SUBSCRIPTION_IDENTIFIER, [0])[0]
        grant, slice_ = Grant(0, True, (identifier,) if identifier else ()), Slice()
        granted = {one[0] for one, code in zip(packet.filters, codes, strict=False) if code < UNSPECIFIED_ERROR}
        for topic_filter, options in dict(packet.filters).items():
            if not topic_filter.startswith("$SYS/") or options & RETAIN_NEVER or topic_filter not in granted:
                continue
            for message in list(self._broker.publishing.announced.values()):
                if slice_.is_over:
                    await slice_.give_way()
                if matches(topic_filter, message.topic):
                    yield message, grant

    async def unsubscribe(self, packet: Unsubscribe) -> list[int]:
        """Returns the reason codes. Raises sqlite3.Error, and nothing is unsubscribed.

        It is saved first: messages of a filter that the store still knows must not be taken out of the log.
        """
        session, removed = self._session, list[bool]()
        there = {topic_filter for topic_filter in packet.filters if session.subscription(topic_filter) is not None}
        changes = {topic_filter: session.note_change(topic_filter) for topic_filter in there}
        await self._broker.sessions.save(session.client_id, without=there)
        slice_ = Slice()
        for topic_filter in packet.filters:
            if slice_.is_over:
                await slice_.give_way()
                if session.connection is not self._connection:
                    break  # what is left of them is saved again with the session's next change
            removed.append(self._broker.subscribers.unsubscribe(session, topic_filter))
        else:
            session.note_saved(changes)
        if any(removed):
            self._broker.limits.count_again([session.cursor])
        return [SUCCESS if was_there else NO_SUBSCRIPTION_EXISTED for was_there in removed]


class _Search(NamedTuple):
    """A subscription that wants the retained messages which were stored up to ``since``."""

    qos: int
    is_new: bool
    since: int


def _wants_retained(topic_filter: str, options: int, is_new: bool) -> bool:
    """[MQTT-3.3.1-9, MQTT-3.3.1-10, MQTT-3.3.1-11]; a shared subscription gets none [section 4.8.2]."""
    if topic_filter.startswith("$share/") or options & RETAIN_NEVER:
        return False
    return is_new or not options & RETAIN_IF_NEW
