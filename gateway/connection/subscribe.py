"""SUBSCRIBE and UNSUBSCRIBE: saved, then acknowledged; then the retained messages of new subscriptions are sent."""

import sqlite3
from collections.abc import AsyncIterator
from typing import NamedTuple

from gateway.auth.permissions import Permissions
from gateway.connection.multicast import MulticastMember
from gateway.connection.services import Services
from gateway.delivery import RetainedSearch, Wanted
from gateway.loop.pace import Slice
from gateway.message import Message
from gateway.multicast import BadMulticast
from gateway.selectors import BadSelector, Selector, parse_selector
from gateway.sessions.session import Session
from gateway.store import Grant, retained
from wire.codec.packets import RETAIN_IF_NEW, RETAIN_NEVER, Subscribe
from wire.multicast import MULTICAST_PROPERTY
from wire.properties import SUBSCRIPTION_IDENTIFIER, USER_PROPERTY
from wire.reasons import NO_SUBSCRIPTION_EXISTED, NOT_AUTHORIZED, QUOTA_EXCEEDED, SUCCESS, UNSPECIFIED_ERROR
from wire.topics import matches

SELECT_PROPERTY = "hf-select"  # the user property of a SUBSCRIBE that has a selector for its subscriptions
FILTERS_AT_ONCE = 100  # each is checked against all access rules; other tasks run in between
OWN_TOPICS = ("$SYS/", "homeassistant/")  # the beginnings of filters that match what the gateway announces


class _NewSearch(NamedTuple):
    wanted: Wanted
    is_new: bool


class SubscribeRefused(Exception):
    """A SUBSCRIBE that is refused as a whole; the text says why."""


class Subscribing:
    """Changes one client's subscriptions.

    Args:
        services: the parts of the gateway that it uses.
        session: the client's session.
        permissions: what the client may subscribe to.
        multicast: what it receives over multicast.
    """

    __slots__ = (
        "_connection",
        "_multicast",
        "_permissions",
        "_services",
        "_session",
    )

    def __init__(
        self, services: Services, session: Session, permissions: Permissions, multicast: MulticastMember
    ) -> None:
        self._multicast = multicast
        self._services = services
        self._session = session
        self._permissions = permissions
        self._connection = session.connection

    async def subscribe(self, packet: Subscribe, naming: str = "") -> tuple[list[int], list[retained.Owed]]:
        """Returns the reason codes and the retained messages to send after the SUBACK.

        ``naming`` is how the client has named the stream. Raises sqlite3.Error, and SubscribeRefused: nothing is
        subscribed then.
        """
        try:
            selector = _selector_of(packet)
        except BadSelector as error:
            raise SubscribeRefused(f"{SELECT_PROPERTY}: {error}") from error
        if self._multicast.asks(packet):
            return await self._subscribe_to_multicast(packet, selector, naming)
        select = selector.text if selector else ""
        identifier = packet.properties.get(SUBSCRIPTION_IDENTIFIER, [0])[0]
        codes = []
        searches: dict[str, _NewSearch] = {}
        slice_ = Slice()
        for number, (topic_filter, options) in enumerate(packet.filters, 1):
            if number % FILTERS_AT_ONCE == 0 or slice_.is_over:
                await slice_.give_way()
                if self._session.connection is not self._connection:
                    break  # the connection has ended, and the session may have too
            if not self._permissions.may_subscribe(topic_filter):
                codes.append(NOT_AUTHORIZED)
                continue
            before = self._session.subscription(topic_filter)
            most = self._services.config.limits.subscriptions
            is_more = before is None or bool(select)
            if is_more and not self._services.subscribers.fits(self._session, topic_filter, most, select):
                codes.append(QUOTA_EXCEEDED)
                continue
            if self._session.is_realtime:
                options &= ~3
            is_new = self._services.subscribers.subscribe(
                self._session, topic_filter, options, identifier, select, naming
            )
            self._multicast.leave(topic_filter)
            codes.append(options & 3)
            if not is_new and self._session.subscription(topic_filter) != before:
                self._services.limits.discarding.count_again([self._session.cursor])
            if _wants_retained(topic_filter, options, is_new):
                is_new |= topic_filter in searches and searches[topic_filter].is_new
                wanted = Wanted(topic_filter, options & 3, self._services.log.head)
                searches[topic_filter] = _NewSearch(wanted, is_new)
        owed: list[retained.Owed] = []
        try:
            refused = await self._find_all(searches, identifier, selector, owed)
            await self._services.sessions.save(self._session.client_id)
        except sqlite3.Error:
            self._give_back(owed, 0)
            raise
        if self._has_ended():
            self._give_back(owed, 0)
        for place in range(len(codes) if refused else 0):
            if packet.filters[place][0] in refused:
                codes[place] = QUOTA_EXCEEDED
        return codes, owed

    async def _subscribe_to_multicast(
        self, packet: Subscribe, selector: Selector | None, naming: str
    ) -> tuple[list[int], list[retained.Owed]]:
        """Replaces subscriptions by those over multicast; the retained messages come over this connection."""
        try:
            if selector is not None:
                raise BadMulticast("a selector cannot be kept over multicast")
            if naming:
                raise BadMulticast("a subscription that names its stream does not go over multicast")
            group = self._multicast.choose(packet)
        except BadMulticast as error:
            raise SubscribeRefused(f"{MULTICAST_PROPERTY}: {error}") from error
        topic_filters = [topic_filter for topic_filter, _ in packet.filters]
        if replaced := [one for one in topic_filters if self._session.subscription(one) is not None]:
            await self.unsubscribe(replaced)
        if self._session.connection is not self._connection:
            return [UNSPECIFIED_ERROR] * len(topic_filters), []
        self._multicast.join(group, topic_filters)
        searches = {
            topic_filter: _NewSearch(Wanted(topic_filter, 0, self._services.log.head), False)
            for topic_filter, options in packet.filters
            if _wants_retained(topic_filter, options, topic_filter not in replaced)
        }
        owed: list[retained.Owed] = []
        try:
            refused = await self._find_all(searches, 0, None, owed)
        except sqlite3.Error:
            self._give_back(owed, 0)
            raise
        if self._has_ended():
            self._give_back(owed, 0)
        for topic_filter in refused:
            self._multicast.leave(topic_filter)
        return [QUOTA_EXCEEDED if one in refused else SUCCESS for one in topic_filters], owed

    def hand_out(self, packet: Subscribe) -> list[tuple[str, str]]:
        """Returns the user properties with the keys for the SUBACK of a SUBSCRIBE that was granted."""
        return self._multicast.hand_out(packet)

    def stop(self) -> None:
        """The connection has ended."""
        self._multicast.stop()

    def _has_ended(self) -> bool:
        return self._services.sessions.get(self._session.client_id) is not self._session

    async def _find_all(
        self, wanted: dict[str, _NewSearch], identifier: int, selector: Selector | None, owed: list[retained.Owed]
    ) -> set[str]:
        """Finds the retained messages that filters match; returns the filters that match too many."""
        refused: set[str] = set()
        if not wanted or self._session.is_aside:
            return refused
        session = self._session
        await self._services.copies.settle()
        conditions = [one for one in (selector, session.link and session.link.conditions) if one]
        not_from = session.cursor.not_from if session.link is not None else ()
        search = RetainedSearch(self._services.log, session.client_id, identifier, not_from, conditions)
        filter_now, first = "", 0
        async for found in search.find(one.wanted for one in wanted.values()):
            if found.topic_filter != filter_now:
                filter_now, first = found.topic_filter, len(owed)
            if await self._owe(found.owed, owed):
                continue
            search.give_up(filter_now)
            self._give_back(owed, first)
            if not self._has_ended():
                refused.add(filter_now)
                if wanted[filter_now].is_new:
                    session.note_change(filter_now)
                    self._services.subscribers.unsubscribe(session, filter_now)
        return refused

    async def _owe(self, found: list[retained.Owed], owed: list[retained.Owed]) -> bool:
        """Adds a piece of a filter's retained messages to ``owed``.

        Returns False if their owner holds too much or the session has ended.
        """
        log, holding = self._services.log, self._session.holding
        size = sum(one.size for one in found)
        if not holding.fits(size) or self._has_ended():
            return False
        holding.add(size)
        try:
            if found and self._session.durable and found[0].qos:
                await log.submit([retained.owe(found)])
        except sqlite3.Error:
            holding.add(-size)  # their numbers were not stored
            raise
        owed += found
        return True

    def _give_back(self, owed: list[retained.Owed], first: int) -> None:
        """Frees what was found from index ``first`` on: it is not sent."""
        given_back = owed[first:]
        del owed[first:]
        self._session.holding.add(-sum(one.size for one in given_back))
        if numbers := [one.number for one in given_back if one.number]:
            self._services.log.defer(retained.forget_owed(numbers))

    async def announced(self, packet: Subscribe, codes: list[int]) -> AsyncIterator[tuple[Message, Grant]]:
        """Yields the gateway's own messages that match the granted subscriptions, once for each filter."""
        identifier = packet.properties.get(SUBSCRIPTION_IDENTIFIER, [0])[0]
        grant, slice_ = Grant(0, True, (identifier,) if identifier else ()), Slice()
        granted = {one[0] for one, code in zip(packet.filters, codes, strict=False) if code < UNSPECIFIED_ERROR}
        for topic_filter, options in dict(packet.filters).items():
            if not topic_filter.startswith(OWN_TOPICS) or options & RETAIN_NEVER or topic_filter not in granted:
                continue
            for message in list(self._services.publishing.announced.values()):
                if slice_.is_over:
                    await slice_.give_way()
                if matches(topic_filter, message.topic):
                    yield message, grant

    async def unsubscribe(self, topic_filters: list[str]) -> list[int]:
        """Returns the reason codes. If it raises sqlite3.Error nothing is unsubscribed.

        The change is saved first: while the store has a filter, its messages must not be removed from the log.
        """
        session, removed = self._session, list[bool]()
        there = {topic_filter for topic_filter in topic_filters if session.subscription(topic_filter) is not None}
        changes = {topic_filter: session.note_change(topic_filter) for topic_filter in there}
        await self._services.sessions.save(session.client_id, without=there)
        slice_ = Slice()
        for topic_filter in topic_filters:
            if slice_.is_over:
                await slice_.give_way()
                if session.connection is not self._connection:
                    break  # the rest is saved again with the session's next change
            was_multicast = self._multicast.leave(topic_filter)
            removed.append(self._services.subscribers.unsubscribe(session, topic_filter) or was_multicast)
        else:
            session.unsaved.note_saved(changes)
        if any(removed):
            self._services.limits.discarding.count_again([session.cursor])
        return [SUCCESS if was_there else NO_SUBSCRIPTION_EXISTED for was_there in removed]


def _selector_of(packet: Subscribe) -> Selector | None:
    """Returns the selector that a SUBSCRIBE has as a user property. Raises BadSelector."""
    texts = [text for name, text in packet.properties.get(USER_PROPERTY, ()) if name == SELECT_PROPERTY]
    if not texts:
        return None
    if len(texts) > 1:
        raise BadSelector(f"expected one user property {SELECT_PROPERTY}, not {len(texts)}")
    if any(topic_filter.startswith("$share/") for topic_filter, _ in packet.filters):
        raise BadSelector("a shared subscription takes no selector")
    return parse_selector(texts[0])


def _wants_retained(topic_filter: str, options: int, is_new: bool) -> bool:
    """Whether retained messages are sent to a subscription [MQTT-3.3.1-9 to -11]; to a shared one never [4.8.2]."""
    if topic_filter.startswith("$share/") or options & RETAIN_NEVER:
        return False
    return is_new or not options & RETAIN_IF_NEW
