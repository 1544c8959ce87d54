"""The lanes of one route: where it is in the log, and what its sender fetches from."""

from functools import partial

from gateway.store import LaneCursor, LeftOut, MessageLog, consumer_names
from uplink.config.queue import QueueSettings
from uplink.numbers import RouteNumbers, is_statement_topic
from uplink.outlet.batch import BatchPacker
from uplink.outlet.batch_publish import batch_topic, payload_max
from uplink.outlet.keeper import LaneKeeper
from uplink.outlet.lane import Lane
from uplink.outlet.pace import BackfillPace
from uplink.outlet.route_cursor import WINDOW_MOST, RouteCursor, batches_in_flight
from uplink.queue.link import RouteLink
from uplink.refusals import Refusals
from uplink.shape import Shaping
from wire.bulk.connection import BulkClientConnection
from wire.codec.packets import MQTT_5


class RouteLanes:
    """The cursors of a route, and the route numbers that the messages of each get.

    Args:
        log: the gateway's store.
        consumer: the name of the route's cursor.
        names: the gateway's name and the route's.
        link: has the subscriptions of new lanes.
        refusals: where messages are set aside that cannot be shaped.
        settings: the route's.

    ``live`` hands out the messages as they are stored, but for those of the backfill, which ``backfill`` hands out, if
    there is one. ``numbers`` are those of each lane; the live lane's come first. ``outlet`` hands out what both do, as
    the route sends it. ``keeper`` says what is backfill, and ``left_out`` what the route leaves out.
    """

    def __init__(
        self,
        log: MessageLog,
        consumer: str,
        names: tuple[str, str],
        link: RouteLink,
        refusals: Refusals,
        settings: QueueSettings,
    ) -> None:
        self._log = log
        self._consumer = consumer
        self._names = names
        self._link = link
        self._refusals = refusals
        self._former_head = log.head
        is_known, self.live = consumer in log.consumers.names(), self._open_lane(settings)
        self.left_out = LeftOut(self.live, log.routes.left_out, log.routes.own, is_statement_topic)
        self.numbers = [self._numbers_of_lane(self.live, is_known=is_known)]
        self.backfill: LaneCursor | None = None
        self._change_backfill(settings)
        self.shaping = Shaping((), *names)
        self._change_steps(settings)

    def change(self, settings: QueueSettings) -> None:
        """Goes on with other settings at the same places. The route has no connection now."""
        self.outlet.give_back()
        self._change_backfill(settings)
        for cursor in self.cursors:
            cursor.not_from = self._link.not_from
            cursor.window = _window(settings)
            cursor.tally.estimate()  # until all that waits is counted by the new limits
        self._change_steps(settings)

    def subscribe(self, settings: QueueSettings) -> None:
        """Subscribes each lane to what the route sends by these settings."""
        for subscription in self._link.subscriptions(settings):
            for cursor in self.cursors:
                cursor.subscribe(subscription)

    @property
    def cursors(self) -> list[LaneCursor]:
        """The cursors of both lanes, the backfill's first; without a backfill the only one."""
        return [self.live] if self.backfill is None else [self.backfill, self.live]

    def may_have_arrived(self) -> bool:
        """Whether messages wait that a former process may have handed out: so they may have arrived."""
        return any(cursor.unread_from < self._former_head for cursor in self.cursors)

    def numbers_of(self, packet_identifier: int) -> RouteNumbers:
        """Returns what numbers the lane of a delivery without an acknowledgement."""
        return self.numbers[-1] if self.outlet.is_backfill(packet_identifier) else self.numbers[0]

    async def begin(self, client: BulkClientConnection | None) -> None:
        """A connection begins, None: to a foreign system. Messages get route numbers if these are known there.

        Raises sqlite3.Error.
        """
        if self.keeper is not None:
            await self.keeper.look(is_connected=True)
        basis = self._basis if client is not None and client.protocol_level == MQTT_5 else None
        for numbers in self.numbers:
            await numbers.begin(basis)
        if client is not None:
            self.outlet.begin(lambda: client.send_quota)
            via_size = max([numbers.longest_property() for numbers in self.numbers])
            self.outlet.payload_max = payload_max(client.maximum_packet_size_peer, self.batch_topic, via_size)

    def end_numbers(self) -> None:
        """The messages get other route numbers from now on."""
        for numbers in self.numbers:
            numbers.end()

    def forget(self) -> None:
        """Ends the lanes: nothing waits for the route any more."""
        self.left_out.close()
        for cursor in self.cursors:
            cursor.drop()

    def _open_lane(self, settings: QueueSettings, *, is_backfill: bool = False) -> LaneCursor:
        cursor = LaneCursor(
            self._log,
            self._consumer,
            self._link.subscriptions(settings),
            backfill=self._log.routes.backfill_of(self._consumer),
            is_backfill=is_backfill,
            window=_window(settings),
        )
        cursor.not_from = self._link.not_from
        cursor.tell_unsent = partial(self._log.kept.note_unsent, self._consumer)
        return cursor

    def _numbers_of_lane(self, cursor: LaneCursor, *, is_known: bool) -> RouteNumbers:
        """Returns what numbers a lane; if the lane's place was not known, an epoch begins."""
        numbers = RouteNumbers(*self._names, self._log, cursor, self._has_unstated_backfill, self.left_out)
        if not is_known:
            numbers.end()
        return numbers

    def _has_unstated_backfill(self) -> bool:
        """Whether there is a backfill with messages that no statement covers yet."""
        return self.backfill is not None and not (self.backfill.is_done and self.numbers[-1].is_said)

    async def _finish_live_numbers(self) -> None:
        await self.numbers[0].finish(self._basis)

    def _change_steps(self, settings: QueueSettings) -> None:
        self._basis = f"{self._link.statement_topic} qos0={settings.qos0}"  # with another one an epoch begins
        if settings.shape != self.shaping.configs:  # the same ones go on with what they remember
            self.shaping = Shaping(settings.shape, *self._names, self._link.statement_topic)
        self.batch_topic = settings.batch_topic or batch_topic(*self._names)
        self._join(settings)

    def _change_backfill(self, settings: QueueSettings) -> None:
        """Opens the cursor of the backfill where the route has one now; one that has nothing left ends otherwise."""
        log, place = self._log, consumer_names.BACKFILL + self._consumer
        ranges = log.routes.backfill_of(self._consumer)
        ranges.trim(min(log.saved_position(place), log.saved_position(self._consumer)))
        if ranges or settings.order == "live_first" or self._is_backfill_unsaid(settings):
            if self.backfill is None:
                is_known, self.backfill = place in log.consumers.names(), self._open_lane(settings, is_backfill=True)
                self.left_out.add_lane(self.backfill)
                self.numbers.append(self._numbers_of_lane(self.backfill, is_known=is_known))
        elif self.backfill is not None:
            self.numbers.pop().end()
            self.left_out.remove_lane(self.backfill)
            self.backfill.drop()
            self.backfill = None
        else:
            if (work := log.routes.end_numbering(place)) is not None:
                log.defer(work)
            log.forget(place)
        for numbers in self.numbers:
            numbers.change_settings(settings.states_every_s, settings.broker)

    def _is_backfill_unsaid(self, settings: QueueSettings) -> bool:
        """Whether a statement of messages that went as backfill is to come."""
        if not settings.states_every_s:
            return False
        if self.backfill is not None:
            return not self.numbers[-1].is_said
        numbering = self._log.routes.numbering_of(consumer_names.BACKFILL + self._consumer)
        return numbering is not None and bool(numbering.due or numbering.handed)

    def _join(self, settings: QueueSettings) -> None:
        """Puts together what the sender fetches from."""
        live, backfill = self._lane(self.live, self.numbers[0], settings), None
        pace: BackfillPace | None = None
        self.keeper: LaneKeeper | None = None
        if self.backfill is not None and settings.order:
            backfill = self._lane(self.backfill, self.numbers[-1], settings)
            if is_live_first := settings.order == "live_first":
                pace = BackfillPace(settings.backfill_weight, settings.backfill_rate, settings.inflight_window)
            self.keeper = LaneKeeper(
                self._log, self.live, self.backfill, self._finish_live_numbers, is_live_first=is_live_first
            )
            for cursor in () if settings.batch_limits else self.cursors:
                cursor.window = min(cursor.window, WINDOW_MOST)
        most = batches_in_flight(settings.inflight_window)
        self.outlet = RouteCursor(live, backfill, pace, most)

    def _lane(self, cursor: LaneCursor, numbers: RouteNumbers, settings: QueueSettings) -> Lane:
        shape = self.shaping.shape if self.shaping.configs else None
        packer = None if settings.batch_limits is None else BatchPacker(*settings.batch_limits)
        return Lane(self._log, cursor, numbers, self._refusals, shape, packer, self.batch_topic)


def _window(settings: QueueSettings) -> int:
    """Returns how many messages may be handed out and not acknowledged: those in flight and of the next batch."""
    if settings.batch_limits is None:
        return settings.inflight_window
    return (batches_in_flight(settings.inflight_window) + 1) * settings.batch_limits[0]
