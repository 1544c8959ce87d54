"""A route's link to a neighbour: what the neighbour wants, and which messages go over the link."""

import contextlib
import sqlite3
from collections.abc import Callable, Collection, Container, Coroutine, Generator, Iterable, Sequence

from gateway.delivery import Sender
from gateway.links import Announced, Conditions, LinkSettings, Mark, Network
from gateway.routes import Message, Slice, Subscription
from gateway.store import Backlog, Endings, LaneCursor, MessageLog, ReasonToDrop, drops, qos2
from uplink.config.queue import QueueSettings
from uplink.queue.heard import HeardInterest, NotedFilters
from uplink.queue.owed import OwedRetained
from wire.topics import matches

AT_ONCE = 100  # filters that a neighbour newly wants, or no longer; beyond it other tasks run in between
WRITTEN_AT_ONCE = 2_000  # changed filters in one commit, so that no publisher waits long behind it


class RouteLink:
    """What a route and the other end of its line want of each other. It outlives the route's connections.

    Args:
        log: the gateway's store.
        session: the route's name in the tables of sessions.
        network: told what a neighbour wants.
        configured: returns the filters of the route's configuration, whose messages are always carried.
        statement_topic: the topic of the route's statements, which are always carried too.
        settings: has the neighbour.

    ``interest`` is what the neighbour wants. ``asked`` are the filters that an ordinary broker was asked for
    since the route's note was saved: its session may have them. ``ended`` are filters that the other end was asked to
    end, without an answer: their copies are gone here. ``owed`` are the retained messages that are to go. Messages of
    the publishers in ``not_from`` do not go over the link, nor do messages that do not pass the ``conditions``.
    ``is_to_gateway``: the other end says what it wants.
    """

    def __init__(
        self,
        log: MessageLog,
        session: str,
        network: Network | None,
        configured: Callable[[], Collection[str]],
        statement_topic: str,
        settings: QueueSettings,
    ) -> None:
        self._log = log
        self._session = session
        self._network = network
        self._configured = configured
        self.statement_topic = statement_topic
        self.interest = HeardInterest(log, session, network)
        self.asked = NotedFilters(log, f"{session}asked{qos2.ROUTE_END}")
        self.ended = NotedFilters(log, f"{session}ended{qos2.ROUTE_END}")
        self.owed = OwedRetained(log, session, self.interest, configured)
        self.not_from: Container[str]
        self.change(settings)

    def change(self, settings: QueueSettings) -> None:
        """Has the neighbour of these settings, or none. What came over the link's side does not go out over it."""
        self.not_from = (self._session,)
        self._outgoing = settings.outgoing
        self.conditions = Conditions(self._outgoing)
        self._is_away, self.is_to_gateway = True, False
        neighbour = settings.neighbour
        self._is_passive = neighbour is not None and neighbour.is_passive
        self.interest.give_side(None if neighbour is None else neighbour.side)
        if neighbour is not None and self._network is not None:
            self.not_from = self._network.publishers(neighbour.side, self._session)

    def subscriptions(self, settings: QueueSettings) -> list[Subscription]:
        """Returns the subscriptions to the configured filters, and to the filters that the neighbour wants."""
        filters, takes_qos_0 = self._configured(), settings.qos0 == "store"
        sent = (*filters, self.statement_topic) if filters or self.interest.side else ()
        always = [Subscription(one, 2, 0, retain_as_published=True, takes_qos_0=takes_qos_0) for one in sent]
        return always + [one for one in self.interest.subscriptions.values() if one.topic_filter not in sent]

    def begin(self, theirs: LinkSettings | None, cursors: Sequence[LaneCursor]) -> None:
        """A connection begins. What waits for a neighbour of mode active-passive is not for it; ``theirs`` are its
        settings, None for those of an ordinary broker.
        """
        self._is_away, self.is_to_gateway = False, theirs is not None
        if self._is_passive:
            self.owed.want_all()
        self.conditions = Conditions(self._outgoing, theirs.incoming if theirs else ())
        if self._is_passive:
            for cursor in cursors:
                cursor.drop_up_to(self._log.head, self.is_always)

    def end(self) -> None:
        """The connection has ended."""
        self._is_away = True

    def is_always(self, message: Message) -> bool:
        """Whether the route sends a message also if its neighbour does not want it."""
        return self.is_configured(message.topic)

    def is_configured(self, topic: str) -> bool:
        """Whether the route carries messages of a topic whatever its neighbour wants."""
        always = (*self._configured(), self.statement_topic)
        return any(matches(topic_filter, topic) for topic_filter in always)

    def drops(self, may_have_arrived: Callable[[], bool]) -> ReasonToDrop | None:
        """Returns what says why a message does not go over the link: its neighbour is away, or a condition holds it
        back. None if all messages go.

        Args:
            may_have_arrived: whether messages wait that a former process may have handed out.
        """
        if not self.conditions and not self._is_passive:
            return None

        def reason(message: Message) -> str | None:
            if message.topic == self.statement_topic:
                return None
            if self._is_passive and self._is_away and not may_have_arrived() and not self.is_always(message):
                return drops.UNROUTED
            return None if self.conditions.passes(message) else drops.FILTERED

        return reason

    def send_retained(self, sender: Sender) -> Coroutine[None, None, None]:
        """Returns what sends the neighbour the retained messages that its new filters match, for ever."""
        return self.owed.run(sender, self.not_from, self.conditions)

    def set_aside(self, cursor: LaneCursor, *, is_aside: bool) -> None:
        """Takes no new messages, as the link closes a circle, or takes them again. What a filter of the configuration
        matches is always carried, so a route with such filters goes on; the neighbour knows what it has had.
        """
        self.interest.set_aside(is_aside=is_aside)
        if not is_aside:
            self.owed.want_all()
        cursor.takes_new = not is_aside or bool(self._configured())

    def hear(
        self, payload: bytes, cursors: Sequence[LaneCursor], endings: Endings | None
    ) -> Coroutine[None, None, None] | None:
        """The neighbour tells what it wants; it counts for the next message that is stored. Raises BadAnnouncement.

        If that is much, a coroutine is returned that follows it, slice by slice, and raises BadAnnouncement too:
        nothing else of the neighbour may be taken before. ``endings`` are told of messages that wait for what it wants
        no more.
        """
        announced = self.interest.take(payload)
        if announced is None:
            return None
        steps = self._follow(announced, cursors, endings)
        before = len(self.interest.subscriptions) if announced.is_whole else 0
        if len(announced.texts) + before > AT_ONCE:
            return self._follow_in_slices(steps)
        for _ in steps:
            pass
        self.interest.tell()
        return None

    async def _follow_in_slices(self, steps: Iterable[None]) -> None:
        slice_ = Slice()
        for _ in steps:
            self.interest.tell()
            if self.interest.unwritten > WRITTEN_AT_ONCE:
                self.interest.unwritten = 0
                with contextlib.suppress(sqlite3.Error):  # the log says so, and writes it later
                    await self._log.submit([])
            if slice_.is_over:
                await slice_.give_way()
        self.interest.tell()

    def _follow(
        self, announced: Announced, cursors: Sequence[LaneCursor], endings: Endings | None
    ) -> Generator[None, None, None]:
        """Follows an announcement in steps; each leaves memory and store with the same. Raises BadAnnouncement."""
        added, removed, again = yield from self.interest.changes(announced)
        position = min([cursor.position for cursor in cursors])
        always = self._configured()
        left = len(added) + len(removed)
        self.owed.want(again)
        for begin in range(0, len(added), AT_ONCE):
            some = added[begin : begin + AT_ONCE]
            subscriptions = self.interest.add(some, position)
            self.owed.want(some)
            for cursor in cursors:
                self._subscribe(cursor, subscriptions)
            self.interest.count(some, ())
            left -= len(some)
            if left > AT_ONCE:
                self.interest.save(Mark())
                yield
        ended = [one for one in removed if one not in always] if always else removed
        if ended and endings is not None:  # what waits for these, and for none that takes their place, leaves ranges
            for cursor in cursors:
                endings.withdraw(cursor, ended)
        for begin in range(0, len(removed), AT_ONCE):
            some = removed[begin : begin + AT_ONCE]
            self.interest.remove(some)
            for cursor in cursors:
                self._unsubscribe(cursor, some)
            self.interest.count((), some)
            left -= len(some)
            if left > AT_ONCE:
                self.interest.save(Mark())
                yield
        self.interest.save(announced.mark)

    def _unsubscribe(self, cursor: LaneCursor, removed: Iterable[str]) -> None:
        always = self._configured()
        for topic_filter in removed:
            if topic_filter not in always:
                cursor.unsubscribe(topic_filter)
        cursor.tally.stop()  # until it is counted again
        cursor.tally.noticed = Backlog(self._log.count_behind(cursor.position))

    def _subscribe(self, cursor: LaneCursor, added: Iterable[Subscription]) -> None:
        always = self._configured()
        for subscription in added:
            if subscription.topic_filter not in always:
                cursor.subscribe(subscription)

    def forget_neighbour(self) -> bool:
        """Forgets what a neighbour wanted; returns whether that was anything."""
        if not self.interest.subscriptions:
            return False
        self.interest.forget()
        self.owed.forget()
        return True

    def forget(self) -> None:
        """Forgets all of it, also in the store."""
        self.interest.forget()
        for noted in (self.asked, self.ended):
            noted.remove(noted.filters)
        self.owed.forget()
