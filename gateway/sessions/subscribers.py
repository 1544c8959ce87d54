"""The subscriptions of all sessions, their own and shared ones."""

import dataclasses
from collections.abc import Iterator

from gateway.delivery import Sender
from gateway.network import Network
from gateway.network.link import FilterSum, LinkSettings
from gateway.sessions.neighbour_link import NeighbourLink
from gateway.sessions.offers import Offers
from gateway.sessions.session import Session
from gateway.sessions.share_group import ShareGroup
from gateway.store import Cursor, Endings, MessageLog, consumer_names
from gateway.subscriptions import Subscription, size_of
from wire.codec.packets import NO_LOCAL, RETAIN_AS_PUBLISHED
from wire.topics import parse_shared

NEIGHBOUR_FILTERS_MAX = 1_000_000


class Subscribers:
    """Adds and removes subscriptions, and finds the cursors of a topic.

    Args:
        log: the message log in which the groups have their cursors.
        endings: told of each consumer that ends.
        offers: gives QoS 0 messages to sessions and groups.
        network: told which topic filters are wanted.
    """

    def __init__(self, log: MessageLog, endings: Endings, offers: Offers, network: Network) -> None:
        self._log = log
        self._endings = endings
        self._network = network
        self._offers = offers
        self._groups: dict[str, ShareGroup] = {}

    def fits(self, session: Session, topic_filter: str, most: int, select: str = "") -> bool:
        """Whether a session may have one more subscription; ``most`` is the maximum weight of all of them.

        A neighbour subscribes for many clients, and has a limit of its own.
        """
        if session.link is not None:
            return session.link.asked.count < NEIGHBOUR_FILTERS_MAX
        return session.demand.fits(topic_filter, most, select) and session.holding.fits(size_of(topic_filter, select))

    def subscribe(
        self,
        session: Session,
        topic_filter: str,
        options: int,
        identifier: int = 0,
        select: str = "",
        naming: str = "",
    ) -> bool:
        """Adds or replaces a subscription, by its options byte; returns whether it is new.

        ``select`` is a selector; a shared subscription takes none. ``naming`` is how it names its stream.
        """
        qos = options & 3
        as_published = bool(options & RETAIN_AS_PUBLISHED)
        share_name, bare_filter = parse_shared(topic_filter)
        if share_name is not None:
            is_new = topic_filter not in session.shared
            subscription = Subscription(
                bare_filter, qos, retain_as_published=as_published, identifier=identifier, naming=naming
            )
            if subscription != session.shared.get(topic_filter):
                session.note_change(topic_filter)
            self._join(session, topic_filter, subscription)
            return is_new
        before = session.cursor.filters.get(topic_filter)
        since, earlier = (before.since, before.earlier) if before else (self._log.head, ())
        if before is None and session.link is not None:
            cursor = session.cursor
            since, earlier = self._network.succeed(topic_filter, cursor.filters, cursor.position, self._log.head)
        not_from = session.client_id if options & NO_LOCAL and session.link is None else None
        subscription = Subscription(
            topic_filter, qos, since, not_from, as_published, identifier, False, select, earlier, naming
        )
        if subscription != before:
            session.note_change(topic_filter)
        self._add(session, subscription)
        return before is None

    def unsubscribe(self, session: Session, topic_filter: str) -> bool:
        """Removes a subscription; returns whether there was one. The caller saves the session."""
        if (shared := session.shared.pop(topic_filter, None)) is not None:
            self._uncount(session, topic_filter)
            session.count_naming(shared.naming, -1)
            self._want_no_more(session, topic_filter)
            self._leave(session, topic_filter)
            return True
        if topic_filter in session.cursor.filters:
            self._uncount(session, topic_filter, session.cursor.filters[topic_filter].select)
            session.count_naming(session.cursor.filters[topic_filter].naming, -1)
            self._want_no_more(session, topic_filter)
            session.cursor.unsubscribe(topic_filter)
            return True
        return False

    def end(self, session: Session) -> None:
        """Ends a session's subscriptions, and its cursor with the messages that wait."""
        self._endings.note(session.cursor, session.outgoing.unreceived)
        if not (session.is_aside or session.is_realtime):
            self._network.leave([*session.cursor.filters, *session.shared], session.side)
        for topic_filter in session.shared:
            self._leave(session, topic_filter)
        session.shared.clear()
        self._offers.subscribers.pop(session.cursor, None)
        session.cursor.drop()
        session.holding.close()

    def end_lost(self, consumer: str) -> None:
        """Ends a consumer that has a stored cursor and nothing else; a session's subscriptions are unknown then."""
        share = consumer.removeprefix(consumer_names.GROUP)
        cursor = Cursor(self._log, consumer, ["#" if share == consumer else share.partition("/")[2]])
        self._endings.note(cursor)
        cursor.drop()

    def withdraw(self, session: Session, topic_filters: list[str]) -> None:
        """A neighbour is about to end some of its subscriptions: what waits for these alone leaves ranges."""
        self._endings.withdraw(session.cursor, topic_filters)

    def give_link(self, session: Session, settings: LinkSettings | None) -> None:
        """Makes a session the other end of a link, None: of none; what it wants counts for the link's side then."""
        if settings == (session.link and session.link.settings):
            return
        if session.link is not None and session.link.is_aside:
            self.set_aside(session, session.link, is_aside=False)
        before = session.side
        session.link = link = self._link_of(session, settings) if settings else None
        session.cursor.not_from = self._network.publishers(link.side, session.client_id) if link else ()
        session.cursor.reason_to_drop = link.reason_to_drop if link and link.conditions else None
        if session.side == before:
            return
        wanted = [*session.cursor.filters, *session.shared]
        for topic_filter in wanted:
            self._network.want(topic_filter, session.side)
        self._network.leave(wanted, before)

    def _link_of(self, session: Session, settings: LinkSettings) -> NeighbourLink:
        side, former = settings.side(session.client_id), session.link
        asked = former.asked if former and former.side == side else FilterSum(session.cursor.filters)
        return NeighbourLink(settings, side, self._network.conditions(settings), asked)

    def set_aside(self, session: Session, link: NeighbourLink, *, is_aside: bool) -> None:
        """Lets a neighbour's session take no new messages, or take them again; what it wants counts accordingly."""
        link.is_aside, session.cursor.takes_new = is_aside, not is_aside
        if is_aside:
            self._network.leave(session.cursor.filters, link.side)
            return
        for topic_filter in session.cursor.filters:
            self._network.want(topic_filter, link.side)

    def restore(self, session: Session, subscriptions: dict[str, Subscription]) -> None:
        """Adds a stored session's subscriptions, by topic filter; a shared one has its share name in it.

        A link gets the settings that are configured now.
        """
        if session.link is not None:
            self.give_link(session, self._network.as_configured(session.link.settings))
        for topic_filter, subscription in subscriptions.items():
            if parse_shared(topic_filter)[0] is not None:
                self._join(session, topic_filter, subscription)
                continue
            if subscription.since > self._log.head:  # a new log begins its positions anew
                subscription = dataclasses.replace(subscription, since=self._log.head)
                session.note_change(topic_filter)
            self._add(session, subscription)

    def feed(self, session: Session, sender: Sender) -> None:
        """Feeds a session's sender from the cursors of its share groups too."""
        session.sender = sender
        if session.shared:
            sender.open_all(self._sources_of(session, sender))

    def _sources_of(self, session: Session, sender: Sender) -> Iterator[tuple[Cursor, Subscription]]:
        """Yields the cursors of a session's groups, each as its group is when it is asked for."""
        for topic_filter in list(session.shared):
            if session.sender is sender and (subscription := session.shared.get(topic_filter)):
                yield self._groups[topic_filter].cursor, subscription

    def cursors_for(self, topic: str) -> Iterator[Cursor]:
        """Yields the cursors that take messages of a topic."""
        for cursor in self._log.audience.takers(topic):
            if cursor in self._offers.subscribers:
                yield cursor

    def unfed_cursors(self, session: Session) -> list[Cursor]:
        """Returns the cursors of a session that feed no sender now."""
        groups = [self._groups[topic_filter] for topic_filter in session.shared]
        unfed: list[Cursor] = [group.cursor for group in groups if not any(member.sender for member in group.members)]
        return unfed if session.sender else [session.cursor, *unfed]

    def reconsider_rights(self) -> None:
        """Offers the messages of share groups anew after the access rules have changed."""
        for group in self._groups.values():
            group.cursor.reconsider()

    def cursors(self) -> list[Cursor]:
        """Returns the cursors of all groups."""
        return [group.cursor for group in self._groups.values()]

    def _want(self, session: Session, topic_filter: str) -> None:
        if session.link is not None:
            session.link.asked.add(topic_filter)
        if not (session.is_aside or session.is_realtime):
            self._network.want(topic_filter, session.side)

    def _want_no_more(self, session: Session, topic_filter: str) -> None:
        if session.link is not None:
            session.link.asked.remove(topic_filter)
        if not (session.is_aside or session.is_realtime):
            self._network.want_no_more(topic_filter, session.side)

    def _count(self, session: Session, topic_filter: str, select: str = "") -> None:
        session.demand.add(topic_filter, select)
        session.holding.add(size_of(topic_filter, select))

    def _uncount(self, session: Session, topic_filter: str, select: str = "") -> None:
        session.demand.remove(topic_filter, select)
        session.holding.add(-size_of(topic_filter, select))

    def _add(self, session: Session, subscription: Subscription) -> None:
        if before := session.cursor.filters.get(subscription.topic_filter):
            self._uncount(session, before.topic_filter, before.select)
            session.count_naming(before.naming, -1)
        else:
            self._want(session, subscription.topic_filter)
        self._count(session, subscription.topic_filter, subscription.select)
        session.count_naming(subscription.naming)
        session.cursor.subscribe(subscription)
        self._offers.subscribers[session.cursor] = session

    def _join(self, session: Session, topic_filter: str, subscription: Subscription) -> None:
        share_name, bare_filter = parse_shared(topic_filter)
        group = self._groups.get(topic_filter)
        if group is None:
            group = self._groups[topic_filter] = ShareGroup(self._log, str(share_name), bare_filter)
            self._offers.subscribers[group.cursor] = group
        if topic_filter not in session.shared:
            self._count(session, topic_filter)
            self._want(session, topic_filter)
        if before := session.shared.get(topic_filter):
            session.count_naming(before.naming, -1)
        session.count_naming(subscription.naming)
        group.members[session] = None
        session.shared[topic_filter] = subscription
        if session.sender is not None:
            session.sender.open_source(group.cursor, shared=subscription)

    def _leave(self, session: Session, topic_filter: str) -> None:
        group = self._groups[topic_filter]
        del group.members[session]
        if session.sender is not None:
            session.sender.close_source(group.cursor)
        if not group.members:
            del self._groups[topic_filter]
            del self._offers.subscribers[group.cursor]
            self._endings.note(group.cursor)
            group.cursor.drop()
        else:
            group.cursor.reconsider()
