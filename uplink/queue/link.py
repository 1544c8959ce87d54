"""A route's link to a neighbour: what the neighbour wants, and which messages go over the link."""

from collections.abc import Callable, Collection, Container, Coroutine, Iterable, Sequence

from gateway.delivery import Sender
from gateway.links import Conditions, LinkSettings, Network
from gateway.routes import Message, Slice, Subscription
from gateway.store import Backlog, Endings, LaneCursor, MessageLog, ReasonToDrop, drops, qos2
from uplink.config.queue import QueueSettings
from uplink.queue.heard import AskedFilters, HeardInterest
from uplink.queue.owed import OwedRetained
from wire.topics import matches

AT_ONCE = 100  # filters that a neighbour newly wants, or no longer; beyond it other tasks run in between


class RouteLink:
    """What a route and the other end of its line want of each other. It outlives the route's connections.

    Args:
        log: the gateway's store.
        session: the route's name in the tables of sessions.
        network: told what a neighbour wants.
        configured: returns the filters of the route's configuration, whose messages are always carried.
        statement_topic: the topic of the route's statements, which are always carried too.
        settings: has the neighbour.

    ``interest`` is what the neighbour wants. ``asked`` are the filters that an ordinary broker was asked for. ``owed``
    are the retained messages that are to go. Messages of the publishers in ``not_from`` do not go over the link, nor do
    messages that do not pass the ``conditions``. ``is_to_gateway``: the other end says what it wants.
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
        self.asked = AskedFilters(log, f"{session}asked{qos2.ROUTE_END}")
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
        always = (*self._configured(), self.statement_topic)
        return any(matches(topic_filter, message.topic) for topic_filter in always)

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

        If much has changed, a coroutine is returned that does the rest of it, slice by slice: nothing else of the
        neighbour may be taken before. ``endings`` are told of messages that wait for what it wants no more.
        """
        added, removed = self.interest.take(payload, min([cursor.position for cursor in cursors]))
        if removed and endings is not None:
            self._note_withdrawn(added, removed, cursors, endings)
        self.owed.want([one.topic_filter for one in added] + self.interest.wanted_again)
        if len(added) + len(removed) > AT_ONCE:
            return self._follow_all(added, removed, cursors)
        self._follow(added, removed, cursors)
        return None

    def _note_withdrawn(
        self, added: list[Subscription], removed: list[str], cursors: Sequence[LaneCursor], endings: Endings
    ) -> None:
        """Leaves ranges of what waits for filters that are wanted no more, and for none that takes their place."""
        always = self._configured()
        for cursor in cursors:
            self._subscribe(cursor, added)
            endings.withdraw(cursor, [one for one in removed if one not in always])

    async def _follow_all(self, added: list[Subscription], removed: list[str], cursors: Sequence[LaneCursor]) -> None:
        slice_ = Slice()
        for begin in range(0, max(len(added), len(removed)), AT_ONCE):
            self._follow(added[begin : begin + AT_ONCE], removed[begin : begin + AT_ONCE], cursors)
            if slice_.is_over:
                await slice_.give_way()

    def _follow(self, added: list[Subscription], removed: list[str], cursors: Sequence[LaneCursor]) -> None:
        always = self._configured()
        for cursor in cursors:
            self._subscribe(cursor, added)
            for topic_filter in removed:
                if topic_filter not in always:
                    cursor.unsubscribe(topic_filter)
            if removed:
                cursor.tally.stop()  # until it is counted again
                cursor.tally.noticed = Backlog(self._log.count_behind(cursor.position))
        self.interest.count([one.topic_filter for one in added], removed)

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
        self.asked.remove(list(self.asked.filters))
        self.owed.forget()
