"""What the store has for one route: the messages that wait for it, are in flight, or are set aside."""

import contextlib
import sys
from collections.abc import Callable, Container, Coroutine, Iterable, Iterator
from dataclasses import dataclass

from gateway.delivery import Sender
from gateway.links import Conditions, LinkSettings, Network
from gateway.routes import FilterTree, Message, RouteState, Slice, Subscription
from gateway.store import (
    BACKFILL_PREFIX,
    Backlog,
    Delivery,
    Endings,
    Grant,
    LaneCursor,
    LeftOut,
    MessageLog,
    Outgoing,
    ReasonToDrop,
    drops,
    qos2,
)
from uplink.config.route import INFLIGHT_WINDOW_MAX, RouteConfig
from uplink.numbers import LinkNumbers, is_statement_topic
from uplink.outlet.batch import batch_topic
from uplink.outlet.batch_cursor import BatchCursor, BatchPublish, batches_in_flight
from uplink.outlet.keeper import LaneKeeper
from uplink.outlet.lanes import WINDOW_MOST, Lanes
from uplink.outlet.pace import BackfillPace
from uplink.outlet.shaped_cursor import ShapedCursor
from uplink.queue.heard import AskedFilters, HeardInterest
from uplink.queue.owed import OwedRetained
from uplink.queue.status import RouteStatus
from uplink.queue.watch import BacklogWatch
from uplink.refusals import Refusals
from uplink.shape import CannotShape, Shaping
from wire.codec.packets import MQTT_5
from wire.link_numbers import statement_topic
from wire.topics import matches

Outlet = LaneCursor | ShapedCursor | BatchCursor | Lanes
"""What a route's sender fetches from."""

AT_ONCE = 100  # filters that a neighbour newly wants, or no longer; beyond it other tasks run in between
ROUTE_PREFIX = "route/"  # of the names under which the log keeps the routes' cursors


@dataclass(frozen=True)
class RoutePublisher:
    """A route as the publisher of what its broker sends; see ``gateway.connection.publish_in.Publisher``.

    ``client_id`` is none that a client can have.
    """

    client_id: str
    owner: str
    incoming: dict[int, bytes]
    durable: bool = True
    released: None = None

    @property
    def holding(self) -> "RoutePublisher":
        """Itself: it has the owner."""
        return self


class RouteQueue:
    """One route's cursor with everything that belongs to it. A route that is no longer configured keeps its queue.

    ``unwanted`` are the packet identifiers of QoS 2 messages that no client at the broker has subscribed to, until
    their PUBCOMPs: the broker has dropped its copies, and the messages go again behind these.

    Args:
        name: the route's name.
        log: the gateway's store.
        gateway_name: the gateway that the route belongs to, for the numbers of the link and the topic name of batches.
        config: the route, None if it is not configured. The queue goes on with the filters that the store knows; only
            a route that is new to the store begins with those of ``config``.
        network: told what a neighbour at the other end wants.

    ``publisher`` is the route as the publisher of what comes down. ``sender`` sends over the connection that the route
    has now. ``cursor`` hands out the messages as they are stored, but for those of the backfill, which ``backfill``
    hands out, if there is one. ``lanes`` puts both together, as the route sends them. ``outlet`` is what the sender
    fetches from, and ``batches`` the same if it has batches. ``is_to_gateway``: the other end says what it wants.
    ``numbers`` give the messages of each lane their numbers of the link; the live lane's comes first.
    """

    def __init__(
        self,
        name: str,
        log: MessageLog,
        gateway_name: str,
        config: RouteConfig | None = None,
        network: Network | None = None,
    ) -> None:
        self.name = name
        self.consumer = ROUTE_PREFIX + name
        self._log = log
        self._former_head = log.head
        self._broker = "" if config is None else config.broker
        if self.consumer not in log.routes.names():
            if BACKFILL_PREFIX + self.consumer in log.consumers.names():
                log.routes.backfill_of(self.consumer).add(1, log.head)  # which of these it had is lost with the row
            if config is not None:
                log.routes.note_filters(self.consumer, config.sent)
        session = self.consumer + qos2.ROUTE_END
        self.publisher = RoutePublisher(session, f"route {name}", log.found.incoming.pop(session, {}))
        self._network = network
        self._gateway_name = gateway_name
        self.interest = HeardInterest(log, session, network)
        self.asked = AskedFilters(log, f"{session}asked{qos2.ROUTE_END}")
        self.owed = OwedRetained(log, session, self.interest, self._configured_filters)
        self._begin_link_to(config)
        self._qos_0 = "store" if config is None else config.qos0
        self._statement_topic = statement_topic(gateway_name, name)
        is_known, self.cursor = self.consumer in log.consumers.names(), self._open_lane(config)
        if config is not None and not is_known:
            self._want_retained(config.sent)
        self._left_out = LeftOut(self.cursor, log.routes.left_out, log.routes.own, is_statement_topic)
        self.numbers = [self._begin_link(self.cursor, is_known=is_known)]
        self.backfill: LaneCursor | None = None
        self._begin_backfill(config)
        self.state = RouteState(name)
        self.refusals = Refusals(log, self.consumer, self.state)
        self.shaping: Shaping | None = None
        self.batches: BatchCursor | Lanes | None = None
        self._begin_shaping(config)
        self._begin_lanes(config)
        self._offer_qos_0()
        self.sender: Sender | None = None
        self.endings: Endings | None = None
        """Told of messages that wait for what the neighbour wants no more."""
        flows = (flow for flow in log.found.flows if flow.session == session and flow.state != qos2.ENDED)
        self.outgoing = Outgoing(log, session, flows)
        self.outgoing.number = self._number
        self.unwanted: set[int] = set()
        self.watch = self._watch(config)

    def _watch(self, config: RouteConfig | None) -> BacklogWatch:
        return BacklogWatch(
            self.state, self._log, self.cursors, config, self.keeper, self._leaves_out, self._link_drops
        )

    def _begin_shaping(self, config: RouteConfig | None) -> None:
        """Has the rules of a configuration; the same ones as before go on with what they remember."""
        rules = () if config is None else tuple(config.shape)
        if rules != (self.shaping.configs if self.shaping else ()):
            self.shaping = Shaping(rules, self._gateway_name, self.name) if rules else None

    @property
    def _leaves_out(self) -> Callable[[Message], bool] | None:
        leaves_out = self.shaping.leaves_out if self.shaping else None
        if leaves_out is None:
            return None
        return lambda message: message.topic != self._statement_topic and leaves_out(message)

    @property
    def _link_drops(self) -> ReasonToDrop | None:
        return self._drop_over_link if self._conditions or self._is_passive else None

    def _drop_over_link(self, message: Message) -> str | None:
        """Returns why a message does not go over the link: its neighbour is away, or a condition holds it back."""
        if message.topic == self._statement_topic:
            return None
        if self._is_passive and self._is_away and not self._has_former and not self.is_always(message):
            return drops.UNROUTED
        return None if self._conditions.passes(message) else drops.FILTERED

    @property
    def _has_former(self) -> bool:
        """Whether messages wait that a former process may have handed out: so they may have arrived."""
        return any(cursor.unread_from < self._former_head for cursor in self.cursors)

    def is_always(self, message: Message) -> bool:
        """Whether the route sends a message also if its neighbour does not want it."""
        always = (*self._log.routes.filters_of(self.consumer), self._statement_topic)
        return any(matches(topic_filter, message.topic) for topic_filter in always)

    def begin_link(self, theirs: LinkSettings | None) -> None:
        """A connection begins. What waits for a neighbour of mode active-passive is not for it; ``theirs`` are its
        settings, None for those of an ordinary broker.
        """
        self._is_away, self.is_to_gateway = False, theirs is not None
        if self._is_passive:
            self.owed.want_all()
        self._conditions = Conditions(self._outgoing, theirs.incoming if theirs else ())
        if self._is_passive:
            for cursor in self.cursors:
                cursor.drop_up_to(self._log.head, self.is_always)
        self.watch.select(self._leaves_out, self._link_drops)

    def end_link(self) -> None:
        """The connection has ended."""
        self._is_away = True

    @contextlib.contextmanager
    def unselected(self) -> Iterator[None]:
        """Has the cursor hand out all messages in the ``with`` block, also messages that the rules leave out."""
        self.watch.select(None)
        try:
            yield
        finally:
            self.watch.select(self._leaves_out, self._link_drops)

    def shape(self, message: Message) -> Message:
        """Returns a message as the route sends it. Raises CannotShape."""
        is_shaped = self.shaping is not None and message.topic != self._statement_topic
        return self.shaping.shape(message) if self.shaping and is_shaped else message

    def shape_retained(self, message: Message) -> Message | None:
        """Returns a retained message as the route sends it, None if it does not go, or is not retained there."""
        with contextlib.suppress(CannotShape):
            shaped = None if self._leaves_out and self._leaves_out(message) else self.shape(message)
            return shaped if shaped and shaped.retain else None
        return None

    def send_retained(self, sender: Sender) -> Coroutine[None, None, None]:
        """Returns what sends the neighbour the retained messages that its new filters match, for ever."""
        return self.owed.run(sender, self._not_from, self._conditions)

    def _number(self, delivery: Delivery) -> str:
        """Returns the numbers of the link of a message, or of those in a batch."""
        message = delivery.message
        if isinstance(message, BatchPublish):
            return message.via
        if not delivery.number:
            return ""
        return self.numbers_of(delivery.packet_identifier).via(delivery.number)

    def numbers_of(self, packet_identifier: int) -> LinkNumbers:
        """Returns what numbers the lane of a delivery without an acknowledgement."""
        is_backfill = self.lanes is not None and self.lanes.is_backfill(packet_identifier)
        return self.numbers[-1] if is_backfill else self.numbers[0]

    async def begin_numbers(self, protocol_level: int) -> None:
        """A connection begins: its messages get numbers of the link if these are known there. Raises sqlite3.Error."""
        for lane in self.numbers:
            await lane.begin(self._numbered if protocol_level == MQTT_5 else None)

    @property
    def _numbered(self) -> str:
        """Which messages get numbers: with others an epoch begins."""
        return f"{self._statement_topic} qos0={self._qos_0}"

    def _end_numbers(self) -> None:
        for lane in self.numbers:
            lane.end()

    async def _finish_live_numbers(self) -> None:
        await self.numbers[0].finish(self._numbered)

    def _begin_link(self, cursor: LaneCursor, *, is_known: bool) -> LinkNumbers:
        """Returns what numbers a lane; if the lane's place was not known, an epoch begins."""
        names = self._gateway_name, self.name
        numbers = LinkNumbers(*names, self._log, cursor, self._has_unstated_backfill, self._left_out)
        if not is_known:
            numbers.end()
        return numbers

    def _has_unstated_backfill(self) -> bool:
        """Whether there is a backfill with messages that no statement covers yet."""
        return self.backfill is not None and not (self.backfill.is_done and self.numbers[-1].is_said)

    def _open_lane(self, config: RouteConfig | None, *, is_backfill: bool = False) -> LaneCursor:
        subscriptions = self._subscriptions(self._log.routes.filters_of(self.consumer))
        backfill = self._log.routes.backfill_of(self.consumer)
        cursor = LaneCursor(
            self._log,
            self.consumer,
            subscriptions,
            backfill=backfill,
            is_backfill=is_backfill,
            window=INFLIGHT_WINDOW_MAX if config is None else _window(config),
        )
        cursor.not_from = self._not_from
        return cursor

    def _begin_backfill(self, config: RouteConfig | None) -> None:
        """Opens the cursor of the backfill where the route has one now; one that has nothing left ends otherwise."""
        place, ranges = BACKFILL_PREFIX + self.consumer, self._log.routes.backfill_of(self.consumer)
        ranges.trim(min(self._log.saved_position(place), self._log.saved_position(self.consumer)))
        if ranges or (config is not None and (config.order == "live_first" or self._is_backfill_unsaid(config))):
            if self.backfill is None:
                is_known = place in self._log.consumers.names()
                self.backfill = self._open_lane(config, is_backfill=True)
                self._left_out.add_lane(self.backfill)
                self.numbers.append(self._begin_link(self.backfill, is_known=is_known))
        elif self.backfill is not None:
            self.numbers.pop().end()
            self._left_out.remove_lane(self.backfill)
            self.backfill.drop()
            self.backfill = None
        else:
            if (work := self._log.routes.end_numbering(place)) is not None:
                self._log.defer(work)
            self._log.forget(place)
        for lane in self.numbers:
            lane.change_settings(*((0, "") if config is None else (config.states_every_s, config.broker)))

    def _is_backfill_unsaid(self, config: RouteConfig) -> bool:
        """Whether a statement of messages that went as backfill is to come."""
        if not config.states_every_s:
            return False
        if self.backfill is not None:
            return not self.numbers[-1].is_said
        numbering = self._log.routes.numbering_of(BACKFILL_PREFIX + self.consumer)
        return numbering is not None and bool(numbering.due or numbering.handed)

    def _begin_lanes(self, config: RouteConfig | None) -> None:
        self._order = "" if config is None else config.order
        self.batch_topic = (config and config.batch_topic) or batch_topic(self._gateway_name, self.name)
        sources = [self._source(cursor, config) for cursor in (self.cursor, self.backfill) if cursor is not None]
        self.lanes: Lanes | None = None
        self.keeper: LaneKeeper | None = None
        self.outlet: Outlet = sources[0]
        is_batching = config is not None and config.framing == "batch"
        if self.backfill is not None and config is not None:
            is_live_first = config.order == "live_first"
            pace = BackfillPace(config.backfill_weight, config.backfill_rate, config.inflight_window)
            self.outlet = self.lanes = Lanes(sources[0], sources[1], pace, is_live_first=is_live_first)
            self.keeper = LaneKeeper(
                self._log, self.cursor, self.backfill, self._finish_live_numbers, is_live_first=is_live_first
            )
            for cursor in () if is_batching else self.cursors:
                cursor.window = min(cursor.window, WINDOW_MOST)
        self.batches = self.outlet if is_batching and isinstance(self.outlet, BatchCursor | Lanes) else None

    def _source(self, cursor: LaneCursor, config: RouteConfig | None) -> LaneCursor | ShapedCursor | BatchCursor:
        """Returns what hands out the messages of a lane as the route sends them, in batches if it has any."""
        numbers = self.numbers[-1] if cursor.is_backfill else self.numbers[0]
        source = ShapedCursor(cursor, self.shape, self.refusals, numbers.via) if self.shaping else cursor
        if config is None or config.framing == "publish":
            return source
        return BatchCursor(source, self._log, self.batch_topic, config, numbers)

    @property
    def cursors(self) -> list[LaneCursor]:
        """The cursors of both lanes, the backfill's first; without a backfill the only one."""
        return [self.cursor] if self.backfill is None else [self.backfill, self.cursor]

    def _configured_filters(self) -> tuple[str, ...]:
        return self._log.routes.filters_of(self.consumer)

    def _want_retained(self, filters: Iterable[str]) -> None:
        """The retained messages that new filters match go to the broker; foreign systems have none."""
        if self._broker.startswith(("mqtt", "ws")):
            self.owed.want(filters)

    def change_filters(self, filters: tuple[str, ...], endings: Endings) -> None:
        """Takes the messages that other filters match, from now on and among the waiting ones.

        Messages that wait and that none of these filters matches leave ranges ``ended``.
        """
        before = self._configured_filters()
        if filters != before:
            known: FilterTree[bool] = FilterTree()
            for one in before:
                known.put(one, True)
            new = [one for one in filters if one not in before and next(known.covering(one), None) is None]
            for cursor in self.cursors:
                endings.resubscribe(cursor, self._subscriptions(filters))
            self._log.routes.note_filters(self.consumer, filters)
            self._want_retained(new)
            self._end_numbers()
            self.numbers[0].forget_ahead()

    def change(self, config: RouteConfig | None, endings: Endings) -> None:
        """Goes on with other settings at the same place, None: the route is no longer configured.

        While this is called, the route has no connection, and its watch does not run.
        """
        self._broker = "" if config is None else config.broker
        self.state.stands = ""
        if self.batches is not None:
            self.batches.give_back()
        self._begin_link_to(config)
        self._begin_backfill(config)
        for cursor in self.cursors:
            cursor.not_from = self._not_from
            cursor.window = INFLIGHT_WINDOW_MAX if config is None else _window(config)
            cursor.tally.estimate()  # until all that waits is counted by the new limits
        self._begin_shaping(config)
        self._begin_lanes(config)
        self._qos_0 = "store" if config is None else config.qos0
        self._offer_qos_0()
        if config is not None:
            self.change_filters(config.sent, endings)
            is_gateway = config.neighbour is not None and config.neighbour.name is not None
            if not is_gateway and self.interest.subscriptions:
                self.interest.forget()
                self.owed.forget()
                for cursor in self.cursors:
                    endings.resubscribe(cursor, self._subscriptions(config.sent))
        for subscription in self._subscriptions(self._log.routes.filters_of(self.consumer)):
            for cursor in self.cursors:
                cursor.subscribe(subscription)
        self.watch = self._watch(config)

    @property
    def has_session(self) -> bool:
        """Whether the route's session at the next broker began with this store."""
        return self._log.routes.has_session(self.consumer)

    def _subscriptions(self, filters: tuple[str, ...]) -> list[Subscription]:
        """Returns the subscriptions to these filters, and to the filters that a neighbour wants."""
        takes_qos_0 = self._qos_0 == "store"
        sent = (*filters, self._statement_topic) if filters or self.interest.side else ()
        always = [Subscription(one, 2, 0, retain_as_published=True, takes_qos_0=takes_qos_0) for one in sent]
        return always + [one for one in self.interest.subscriptions.values() if one.topic_filter not in sent]

    def _begin_link_to(self, config: RouteConfig | None) -> None:
        """Has the neighbour of a configuration, or none. What came over the link's side does not go out over it."""
        client_id = self.publisher.client_id
        self._not_from: Container[str] = (client_id,)
        self._outgoing = () if config is None else tuple(config.outgoing)
        self._conditions = Conditions(self._outgoing)
        self._is_passive: bool = bool(config and config.neighbour and config.neighbour.mode == "active-passive")
        self._is_away, self.is_to_gateway = True, False
        if config is None or config.neighbour is None:
            self.interest.give_side(None)
            return
        side = config.link_settings(self._gateway_name).side(config.client_id(self._gateway_name))
        self.interest.give_side(side)
        if self._network is not None:
            self._not_from = self._network.publishers(side, client_id)

    def set_aside(self, *, is_aside: bool) -> None:
        """Takes no new messages, as the link closes a circle, or takes them again. What a filter of the configuration
        matches is always carried, so a route with such filters goes on; the neighbour knows what it has had.
        """
        self.interest.set_aside(is_aside=is_aside)
        if not is_aside:
            self.owed.want_all()
        self.cursor.takes_new = not is_aside or bool(self._log.routes.filters_of(self.consumer))

    def hear(self, payload: bytes) -> Coroutine[None, None, None] | None:
        """The neighbour tells what it wants; it counts for the next message that is stored. Raises BadAnnouncement.

        If much has changed, a coroutine is returned that does the rest of it, slice by slice: nothing else of the
        neighbour may be taken before.
        """
        added, removed = self.interest.take(payload, min([cursor.position for cursor in self.cursors]))
        self._note_withdrawn(added, removed)
        self.owed.want([one.topic_filter for one in added] + self.interest.wanted_again)
        if len(added) + len(removed) > AT_ONCE:
            return self._follow_all(added, removed)
        self._follow(added, removed)
        return None

    def _note_withdrawn(self, added: list[Subscription], removed: list[str]) -> None:
        """Leaves ranges of what waits for filters that are wanted no more, and for none that takes their place."""
        if not removed or self.endings is None:
            return
        always = self._log.routes.filters_of(self.consumer)
        for cursor in self.cursors:
            for subscription in added:
                if subscription.topic_filter not in always:
                    cursor.subscribe(subscription)
            self.endings.withdraw(cursor, [one for one in removed if one not in always])

    async def _follow_all(self, added: list[Subscription], removed: list[str]) -> None:
        slice_ = Slice()
        for begin in range(0, max(len(added), len(removed)), AT_ONCE):
            self._follow(added[begin : begin + AT_ONCE], removed[begin : begin + AT_ONCE])
            if slice_.is_over:
                await slice_.give_way()

    def _follow(self, added: list[Subscription], removed: list[str]) -> None:
        always = self._log.routes.filters_of(self.consumer)
        for cursor in self.cursors:
            for subscription in added:
                if subscription.topic_filter not in always:
                    cursor.subscribe(subscription)
            for topic_filter in removed:
                if topic_filter not in always:
                    cursor.unsubscribe(topic_filter)
            if removed:
                cursor.tally.stop()  # until it is counted again
                cursor.tally.noticed = Backlog(self._log.count_behind(cursor.position))
        self.interest.count([one.topic_filter for one in added], removed)

    def _offer_qos_0(self) -> None:
        """Has the cursor offer messages of QoS 0 as they come, where they are not stored for the route."""
        is_stored = self._qos_0 == "store" and self.interest.side is None
        self.cursor.offered = None if is_stored else self._send_now

    def _send_now(self, message: Message) -> None:
        """Sends a message of QoS 0, if that is configured or a neighbour wants it, and the route is connected."""
        if message.publisher in self.cursor.not_from or self.cursor.takes(sys.maxsize, message):
            return  # it is not for the other end, or it is stored
        if message.is_realtime and self.is_to_gateway:
            return  # it goes to all neighbours
        if self.interest.is_aside:
            return
        if not self._conditions.passes(message):
            self._log.drop(drops.FILTERED, self.consumer, message)
            return
        if self._leaves_out is not None and self._leaves_out(message):
            self._log.drop(drops.SELECTED, self.consumer, message)
            return
        if (self._qos_0 == "online" or self.interest.side is not None) and self.sender is not None:
            with contextlib.suppress(CannotShape):
                message = self.shape(message)
                self.sender.send_now(message, Grant(0, message.retain))
                return
        self.state.qos_0_dropped += 1

    def flood(self, message: Message) -> bool:
        """Sends a real-time message to the neighbour, unless it is for the side that it came from; returns whether it
        was sent.
        """
        if self.sender is None or self.interest.is_aside or message.publisher in self.cursor.not_from:
            return False
        if not self._conditions.passes(message):
            self._log.drop(drops.FILTERED, self.consumer, message)
            return False
        self.sender.send_now(message, Grant(0, False))
        return True

    def end_set_aside(self) -> None:
        """Ends the QoS 2 flows of messages that were set aside: the broker has no session that knows them."""
        begun = set(self.outgoing.begun)
        released = [flow for flow in self.outgoing.flows.values() if flow.packet_identifier not in begun]
        if released:
            refused = {one.position for one in self.refusals.all()}
            ended = [flow.packet_identifier for flow in released if not flow.ranges and flow.position in refused]
            self.outgoing.complete(ended)

    def status(self, problem: str = "") -> RouteStatus:
        """Returns how the route is doing; ``problem`` is why it has no connection."""
        state = self.state
        problems = [state.stands, state.receive_problem, state.receive_note, state.statement_note]
        if not state.connected:
            problems = [state.stands or problem, state.statement_note]
        return RouteStatus(
            self.name,
            self._broker,
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
            self._order,
            state.live_messages,
            state.backfill_messages,
        )

    async def forget(self, endings: Endings) -> None:
        """Ends the queue: what waits leaves ranges ``ended``. Raises sqlite3.Error."""
        begun = [*self.outgoing.unreceived, *(one.position for one in self.refusals.all())]
        for cursor in self.cursors:
            endings.note(cursor, begun if cursor is self.cursor else ())
        for one in self.refusals.all():
            self._log.defer(self.refusals.release(one))
        self.outgoing.end()
        self._log.defer(qos2.forget_incoming(self.publisher.client_id))
        self._end_numbers()
        self._log.routes.forget(self.consumer)
        self._left_out.close()
        self.interest.forget()
        self.asked.remove(list(self.asked.filters))
        self.owed.forget()
        for cursor in self.cursors:
            cursor.drop()
        await self._log.submit([])


def _window(config: RouteConfig) -> int:
    """Returns how many messages may be handed out and not acknowledged: those in flight and of the next batch."""
    if config.framing == "publish":
        return config.inflight_window
    return (batches_in_flight(config) + 1) * config.batch_limits[0]
