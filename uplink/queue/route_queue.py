"""What the store has for one route: the messages that wait for it, are in flight, or are set aside."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from gateway.links import LinkSettings, Network
from gateway.routes import FilterTree, Message, RouteState
from gateway.store import Delivery, Endings, MessageLog, Outgoing, Part, ReasonToDrop, consumer_names, qos2
from uplink.config.queue import NOT_CONFIGURED, QueueSettings
from uplink.outlet.batch_publish import BatchPublish
from uplink.queue.keeping import Keeping
from uplink.queue.link import RouteLink
from uplink.queue.route_lanes import RouteLanes
from uplink.queue.status import RouteStatus
from uplink.queue.unqueued import Unqueued
from uplink.queue.watch import BacklogWatch
from uplink.refusals import Refusals
from wire.route_numbers import statement_topic

ROUTE_PREFIX = "route/"  # of the names under which the log keeps the routes' cursors


@dataclass(frozen=True)
class RoutePublisher:
    """A route as the publisher of what its broker sends; see ``gateway.connection.intake.publish_answers.Publisher``.

    ``client_id`` is none that a client can have.
    """

    client_id: str
    owner: str
    incoming: dict[int, bytes]
    durable: bool = True
    released: None = None
    is_broker: ClassVar[bool] = True

    @property
    def holding(self) -> "RoutePublisher":
        """Itself: it has the owner."""
        return self


class RouteQueue:
    """One route with everything of it that outlives a connection. A route that is no longer configured keeps its queue.

    Args:
        name: the route's name.
        log: the gateway's store.
        gateway_name: the gateway that the route belongs to, for the route numbers and the topic name of batches.
        settings: the route's. The queue goes on with the filters that the store knows; only a route that is new to the
            store begins with those of the settings.
        network: told what a neighbour at the other end wants.

    ``publisher`` is the route as the publisher of what comes down. ``link`` is what both ends want of each other.
    ``lanes`` hand out the messages that wait, and ``unqueued`` sends the others at once. ``outgoing`` are the QoS 2
    flows, and ``refusals`` the messages that are set aside. ``unwanted`` are the packet identifiers of QoS 2 messages
    that no client at the broker has subscribed to, until their PUBCOMPs: the broker has dropped its copies, and the
    messages go again behind these. ``settings`` are the route's now.
    ``endings`` is told of messages that wait for what a neighbour wants no more. ``keeping`` is what of the
    acknowledged messages stays until a receipt, None where none does.
    """

    def __init__(
        self,
        name: str,
        log: MessageLog,
        gateway_name: str,
        settings: QueueSettings = NOT_CONFIGURED,
        network: Network | None = None,
    ) -> None:
        self.name = name
        self.consumer = ROUTE_PREFIX + name
        self._log = log
        self.settings = settings
        is_known = self.consumer in log.consumers.names()
        if self.consumer not in log.routes.names():
            if consumer_names.BACKFILL + self.consumer in log.consumers.names():
                log.routes.backfill_of(self.consumer).add(1, log.head)  # which of these it had is lost with the row
            if settings.sent is not None:
                log.routes.note_filters(self.consumer, settings.sent)
        session = self.consumer + qos2.ROUTE_END
        self.publisher = RoutePublisher(session, f"route {name}", log.found.incoming.pop(session, {}))
        self.state = RouteState(name)
        self.refusals = Refusals(log, self.consumer, self.state)
        topic = statement_topic(gateway_name, name)
        self.link = RouteLink(log, session, network, self._filters, topic, settings)
        self.lanes = RouteLanes(log, self.consumer, (gateway_name, name), self.link, self.refusals, settings)
        if not is_known:
            self._want_retained(settings.sent or ())
        self.unqueued = Unqueued(log, self.consumer, self.state, self.link, self.lanes)
        self.unqueued.change(settings)
        self.endings: Endings | None = None
        flows = (flow for flow in log.found.flows if flow.session == session and flow.state != qos2.ENDED)
        self.outgoing = Outgoing(log, session, flows)
        self.outgoing.number = self._number
        self.unwanted: set[int] = set()
        self.watch = self._watch()
        self.keeping = self._keep()

    def _keep(self) -> Keeping | None:
        if self.settings.keep is None:
            self._log.kept.end(self.consumer)
            return None
        lanes, ask = self.lanes, self.lanes.numbers[0].ask
        return Keeping(
            self._log, self.consumer, lambda: lanes.cursors, self._keeps, self.state, self.settings.keep, ask
        )

    def _keeps(self, topic: str, part: Part) -> bool:
        """Whether the route hands on messages of a topic for the tables. What a neighbour wants is for its clients."""
        is_for_tables = self.settings.neighbour is None or self.link.is_configured(topic)
        return is_for_tables and self.lanes.left_out.wants(topic, part)

    def _watch(self) -> BacklogWatch:
        lanes = self.lanes
        return BacklogWatch(self.state, self._log, lanes.cursors, self.settings, lanes.keeper, *self._selection())

    def _selection(self) -> tuple[Callable[[Message], bool] | None, ReasonToDrop | None]:
        """Returns which messages the rules leave out, and why one does not go over the link."""
        return self.lanes.shaping.leaves_out, self.link.drops(self.lanes.may_have_arrived)

    def begin_link(self, theirs: LinkSettings | None) -> None:
        """A connection begins; ``theirs`` are the settings of the neighbour, None for those of an ordinary broker."""
        self.link.begin(theirs, self.lanes.cursors)
        self.watch.select(*self._selection())

    @contextlib.contextmanager
    def unselected(self) -> Iterator[None]:
        """Has the cursors hand out all messages in the ``with`` block, also messages that the rules leave out."""
        self.watch.select(None)
        try:
            yield
        finally:
            self.watch.select(*self._selection())

    def _number(self, delivery: Delivery) -> str:
        """Returns the route numbers of a message, or of those in a batch."""
        message = delivery.message
        if isinstance(message, BatchPublish):
            return message.via
        if not delivery.number:
            return ""
        return self.lanes.numbers_of(delivery.packet_identifier).via(delivery.number)

    def _filters(self) -> tuple[str, ...]:
        return self._log.routes.filters_of(self.consumer)

    def _want_retained(self, filters: Iterable[str]) -> None:
        """The retained messages that new filters match go to the broker; foreign systems have none."""
        if self.settings.broker.startswith(("mqtt", "ws")):
            self.link.owed.want(filters)

    def change_filters(self, filters: tuple[str, ...], endings: Endings) -> None:
        """Takes the messages that other filters match, from now on and among the waiting ones.

        Messages that wait and that none of these filters matches leave ranges ``ended``.
        """
        before = self._filters()
        if filters != before:
            known: FilterTree[bool] = FilterTree()
            for one in before:
                known.put(one, True)
            new = [one for one in filters if one not in before and next(known.covering(one), None) is None]
            self._log.routes.note_filters(self.consumer, filters)
            self._resubscribe(endings)
            self._want_retained(new)
            self.lanes.end_numbers()
            self.lanes.numbers[0].forget_ahead()

    def _resubscribe(self, endings: Endings) -> None:
        for cursor in self.lanes.cursors:
            endings.resubscribe(cursor, self.link.subscriptions(self.settings))

    def change(self, settings: QueueSettings, endings: Endings) -> None:
        """Goes on with other settings at the same place.

        While this is called, the route has no connection, and its watch does not run.
        """
        self.settings = settings
        self.state.stands = ""
        self.link.change(settings)
        self.lanes.change(settings)
        self.unqueued.change(settings)
        if settings.sent is not None:
            self.change_filters(settings.sent, endings)
            is_gateway = settings.neighbour is not None and settings.neighbour.is_gateway
            if not is_gateway and self.link.forget_neighbour():
                self._resubscribe(endings)
        self.lanes.subscribe(settings)
        self.watch = self._watch()
        if settings.keep is None or self.keeping is None or settings.keep != self.keeping.settings:
            self.keeping = self._keep()

    @property
    def has_session(self) -> bool:
        """Whether the route's session at the next broker began with this store."""
        return self._log.routes.has_session(self.consumer)

    def end_set_aside(self) -> None:
        """Ends the QoS 2 flows of messages that were set aside: the broker has no session that knows them."""
        self.outgoing.complete([flow.packet_identifier for flow in self._released(is_set_aside=True)])

    def released_flows(self) -> list[qos2.Flow]:
        """Returns the QoS 2 flows with a PUBREC whose messages the broker loses if it loses the session."""
        return [flow for flow in self._released(is_set_aside=False) if flow.needs_message]

    def _released(self, *, is_set_aside: bool) -> list[qos2.Flow]:
        begun = set(self.outgoing.begun)
        released = [flow for flow in self.outgoing.flows.values() if flow.packet_identifier not in begun]
        refused = {one.position for one in self.refusals.all()} if released else set()
        return [flow for flow in released if (not flow.ranges and flow.position in refused) == is_set_aside]

    def status(self, problem: str = "") -> RouteStatus:
        """Returns how the route is doing; ``problem`` is why it has no connection."""
        state = self.state
        problems = [state.stands, state.receive_problem, state.receive_note, state.statement_note]
        if not state.connected:
            problems = [state.stands or problem, state.statement_note]
        return RouteStatus(
            self.name,
            self.settings.broker,
            state.server,
            state.connected,
            state.connected and bool(state.stands),
            state.backlog_messages,
            state.backlog_bytes,
            state.oldest_ms,
            round(state.backlog_age_s, 1),
            round(state.drain_s, 1),
            state.acknowledged_ms,
            state.refused_messages,
            state.reconnects,
            state.retries,
            state.received_messages,
            "; ".join(filter(None, problems)),
            state.last_error,
            state.last_error_ms,
            self.settings.order,
            state.live_messages,
            state.backfill_messages,
            state.unproven_messages,
            state.unproven_bytes,
            state.unproven_ms,
            state.unproven_sent,
            state.landed_ms,
        )

    async def forget(self, endings: Endings) -> None:
        """Ends the queue: what waits leaves ranges ``ended``. Raises sqlite3.Error."""
        begun = [*self.outgoing.unreceived, *(one.position for one in self.refusals.all())]
        for cursor in self.lanes.cursors:
            endings.note(cursor, begun if cursor is self.lanes.live else ())
        for one in self.refusals.all():
            self._log.defer(self.refusals.release(one))
        self.outgoing.end()
        self._log.kept.end(self.consumer)
        self._log.defer(qos2.forget_incoming(self.publisher.client_id))
        self.lanes.end_numbers()
        self._log.routes.forget(self.consumer)
        self.link.forget()
        self.lanes.forget()
        await self._log.submit([])
