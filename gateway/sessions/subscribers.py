"""The subscriptions of all sessions, their own and shared ones, and the subscribers of each message."""

import asyncio
import dataclasses
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain

from gateway.delivery import Sender
from gateway.loop.pace import Shift, Shifts
from gateway.message import Message
from gateway.network import Network
from gateway.network.conditions import NO_CONDITIONS, Conditions
from gateway.network.link import FilterSum, LinkSettings
from gateway.network.zones import LOCAL
from gateway.sessions.session import Session
from gateway.store import Cursor, Endings, GroupCursor, MessageLog, consumer_names, drops, grant_by
from gateway.subscriptions import Subscription, size_of
from wire.codec.packets import NO_LOCAL, RETAIN_AS_PUBLISHED
from wire.topics import parse_shared

NEIGHBOUR_FILTERS_MAX = 1_000_000
HANDOUT_MOST = 10_000  # QoS 0 messages that wait to be handed out, each counted once for each subscriber


class ShareGroup:
    """The sessions that subscribe to one topic filter under one share name [section 4.8.2].

    One durable cursor feeds the members that have room. It keeps messages as long as the group has members, connected
    or not. A message that a member has not acknowledged when its connection ends goes to another member, and so does
    a message that the access rules deny to a member. A message that they deny to all members leaves a range.
    """

    def __init__(self, log: MessageLog, share_name: str, topic_filter: str) -> None:
        self.topic_filter = topic_filter
        self.name = f"$share/{share_name}/{topic_filter}"
        self.members: OrderedDict[Session, None] = OrderedDict()
        # A share name has no slash, so the name is unique [MQTT-4.8.2-1].
        # Packet identifiers belong to each member: a member that acknowledges nothing stops no other one.
        self.cursor = GroupCursor(
            log, f"{consumer_names.GROUP}{share_name}/{topic_filter}", [topic_filter], window=sys.maxsize
        )
        self.cursor.may_be_taken = self._may_any_receive
        self._log = log

    def _may_any_receive(self, topic: str) -> bool:
        return any(session.cursor.rights.may_receive(topic) for session in self.members)

    def offer(self, message: Message) -> None:
        """Sends a QoS 0 message to the next connected member that may receive it; members take turns."""
        is_any_here = False
        for session in self.members:
            if session.sender is not None:
                is_any_here = True
                if session.sender.may_send(message.topic):
                    self.members.move_to_end(session)
                    session.sender.send_now(message, grant_by([session.shared[self.name]], message))
                    return
        if is_any_here:
            self._log.drop(drops.FILTERED, self.cursor.consumer, message)


class _Handout:
    """Hands the QoS 0 messages of one owner to their subscribers, in order, until none is left.

    Args:
        shift: the owner's.
        offer: gives a message to the subscriber with a cursor.
        ended: called when all are handed out.
    """

    def __init__(self, shift: Shift, offer: Callable[[Cursor, Message], None], ended: Callable[[], object]) -> None:
        self._shift = shift
        self._offer = offer
        self._ended = ended
        self.size = 0  # messages, each counted once for each subscriber
        self._waiting: deque[tuple[Message, tuple[Cursor, ...]]] = deque()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def add(self, message: Message, takers: Iterator[Cursor]) -> None:
        """Adds a message behind the others, for the cursors that took it when it was published."""
        cursors = tuple(takers)  # without their subscriptions
        self._waiting.append((message, cursors))
        self.size += len(cursors)

    async def wait(self) -> None:
        """Waits until all are handed out."""
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._waiting:
                message, takers = self._waiting[0]
                for cursor in takers:
                    await self._shift.wait()
                    self._offer(cursor, message)
                self.size -= len(takers)
                self._waiting.popleft()
        finally:
            self._ended()


class Subscribers:
    """Adds and removes subscriptions, and finds the subscribers of a topic.

    Args:
        log: the message log in which the groups have their cursors.
        endings: told of each consumer that ends.
        shifts: how long an owner's QoS 0 messages are handed out at a time.
        network: told which topic filters are wanted.
    """

    def __init__(self, log: MessageLog, endings: Endings, shifts: Shifts, network: Network) -> None:
        self._log = log
        self._endings = endings
        self._network = network
        self._by_cursor: dict[Cursor, Session | ShareGroup] = {}
        self._groups: dict[str, ShareGroup] = {}
        self._shifts = shifts
        self._handouts: dict[str, _Handout] = {}  # by owner

    async def close(self) -> None:
        """Hands out what is left; the clients have gone."""
        for handout in list(self._handouts.values()):
            await handout.wait()

    def fits(self, session: Session, topic_filter: str, most: int, select: str = "") -> bool:
        """Whether a session may have one more subscription; ``most`` is the maximum weight of all of them.

        A neighbour subscribes for many clients, and has a limit of its own.
        """
        if session.link is not None:
            return session.asked.count < NEIGHBOUR_FILTERS_MAX
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
            since, earlier = self._network.succeed(
                topic_filter, session.side, cursor.filters, cursor.position, self._log.head
            )
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
        self._by_cursor.pop(session.cursor, None)
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

    def give_link(self, session: Session, link: LinkSettings | None) -> None:
        """Makes a session the other end of a link, None: of none; what it wants counts for the link's side then."""
        if link == session.link:
            return
        if session.is_aside:
            self.set_aside(session, is_aside=False)
        before, session.link = session.side, link
        session.side = link.side(session.client_id) if link else LOCAL
        session.cursor.not_from = self._network.publishers(session.side, session.client_id) if link else ()
        session.conditions = self._network.conditions(link) if link else NO_CONDITIONS
        session.cursor.reason_to_drop = partial(_held_back_by, session.conditions) if session.conditions else None
        if session.side == before:
            return
        session.asked = FilterSum(session.cursor.filters if link else ())
        wanted = [*session.cursor.filters, *session.shared]
        for topic_filter in wanted:
            self._network.want(topic_filter, session.side)
        self._network.leave(wanted, before)

    def set_aside(self, session: Session, *, is_aside: bool) -> None:
        """Lets a neighbour's session take no new messages, or take them again; what it wants counts accordingly."""
        session.is_aside, session.cursor.takes_new = is_aside, not is_aside
        if is_aside:
            self._network.leave(session.cursor.filters, session.side)
            return
        for topic_filter in session.cursor.filters:
            self._network.want(topic_filter, session.side)

    def restore(self, session: Session, subscriptions: dict[str, Subscription]) -> None:
        """Adds a stored session's subscriptions, by topic filter; a shared one has its share name in it.

        A link gets the settings that are configured now.
        """
        if session.link is not None:
            self.give_link(session, self._network.as_configured(session.link))
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

    def offer(self, message: Message) -> None:
        """Sends a QoS 0 message to its connected subscribers, and a real-time one to all neighbours, as it comes.

        If that takes more than a slice, the rest is sent later, before the messages that its owner publishes meanwhile.
        """
        if message.is_realtime:
            self._network.links.flood(message)
        takers = iter(self._log.audience.takers(message.topic))
        if handout := self._handouts.get(message.owner):
            handout.add(message, takers)
            return
        shift = self._shifts.of(message.owner)
        for cursor in takers:
            if shift.is_over:
                self._hand_out_later(shift, message, chain((cursor,), takers))
                return
            self._offer_to(cursor, message)

    def _hand_out_later(self, shift: Shift, message: Message, takers: Iterator[Cursor]) -> None:
        owner = message.owner
        self._handouts[owner] = _Handout(shift, self._offer_to, lambda: self._handouts.pop(owner))
        self._handouts[owner].add(message, takers)

    async def wait_for(self, owner: str) -> None:
        """Waits until an owner's QoS 0 messages are handed out."""
        if handout := self._handouts.get(owner):
            await handout.wait()

    async def wait_for_many(self, owner: str) -> None:
        """Waits likewise, but only if more than HANDOUT_MOST of them wait."""
        if (handout := self._handouts.get(owner)) and handout.size > HANDOUT_MOST:
            await handout.wait()

    def _offer_to(self, cursor: Cursor, message: Message) -> None:
        if subscriber := self._by_cursor.get(cursor):
            subscriber.offer(message)
        elif cursor.offered is not None:
            cursor.offered(message)

    def cursors_for(self, topic: str) -> Iterator[Cursor]:
        """Yields the cursors that take messages of a topic."""
        for cursor in self._log.audience.takers(topic):
            if cursor in self._by_cursor:
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
            session.asked.add(topic_filter)
        if not (session.is_aside or session.is_realtime):
            self._network.want(topic_filter, session.side)

    def _want_no_more(self, session: Session, topic_filter: str) -> None:
        if session.link is not None:
            session.asked.remove(topic_filter)
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
        self._by_cursor[session.cursor] = session

    def _join(self, session: Session, topic_filter: str, subscription: Subscription) -> None:
        share_name, bare_filter = parse_shared(topic_filter)
        group = self._groups.get(topic_filter)
        if group is None:
            group = self._groups[topic_filter] = ShareGroup(self._log, str(share_name), bare_filter)
            self._by_cursor[group.cursor] = group
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
            del self._by_cursor[group.cursor]
            self._endings.note(group.cursor)
            group.cursor.drop()
        else:
            group.cursor.reconsider()


def _held_back_by(conditions: Conditions, message: Message) -> str | None:
    return None if conditions.passes(message) else drops.FILTERED
