"""The delivery engine: cursor → window → PUBLISH → acknowledgement → cursor, to clients and over routes.

::

    session's cursor ──┐
    share group's ─────┤
    retained messages ─┼─ fetch ─► QoS 2: noted ─► room in the window and on the line? ─► PUBLISH ─► client
                       │                                                                                │
    cursor.acknowledge ◄─ QoS 1 ◄────────────────────────────────────── PUBACK, PUBREC → PUBREL, PUBCOMP ┘

The sender pulls: it fetches only as much as the client has room for. So a slow client holds back no other client, and
messages that are not fetched stay on disk.
"""

import asyncio
import logging
import sqlite3
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import cast

from gateway.delivery.copies import apart, copies_of, granted, publish_copies
from gateway.delivery.earlier_flows import release_again, send_again, send_again_up_to
from gateway.delivery.live_hold import LiveHold
from gateway.delivery.retained_cursor import RetainedCursor
from gateway.delivery.source import OwnCursor, Source
from gateway.delivery.window import Window, plain_ones
from gateway.loop.pace import Reservation, Slice
from gateway.loop.signals import Signal
from gateway.message import Message
from gateway.store import (
    HAND_OUT_BYTES_MAX,
    Cursor,
    Delivery,
    DeliveryRun,
    Grant,
    GroupCursor,
    MessageLog,
    Piece,
    RunCursor,
    drops,
    grant_by,
    qos2,
)
from gateway.subscriptions import Subscription
from wire.errors import WireError

FETCH_MOST = 250  # deliveries between two looks at the window and the line
SHARED_FETCH_MOST = 8  # a member of a group takes few at a time, so that the others get their part
QOS_0_BACKLOG_MAX = 1024 * 1024  # bytes waiting on the line beyond which QoS 0 messages are dropped

logger = logging.getLogger(__name__)


class Sender:
    """Sends one client what its cursors hold, for the time of one connection.

    A client is the session of a subscriber, or the next broker of a route.

    Args:
        window: the way to the client.
        log: where messages are read again that go on over this connection.
        cursor: the session's.
        failed: called with a text when messages cannot be sent any more; ends the connection.
        retained: the cursor of the retained messages that the session's subscriptions match, if it is owed any.

    ``retained`` may be set later, before the session is owed any.
    """

    __slots__ = (
        "_closed",
        "_cursor",
        "_dropped",
        "_failed",
        "_hold",
        "_log",
        "_opening",
        "_resumed",
        "_resuming",
        "_sources",
        "_window",
        "retained",
    )

    def __init__(
        self,
        window: Window,
        log: MessageLog,
        cursor: OwnCursor,
        failed: Callable[[str], None],
        retained: RetainedCursor | None = None,
    ) -> None:
        self._window = window
        self._log = log
        self._cursor = cursor
        self._failed = failed
        self._sources: dict[str, Source] = {}
        self._closed: list[Source] = []  # with something on its way yet, perhaps
        self._resumed = Signal()
        self._dropped = 0
        self._opening: asyncio.Task[None] | None = None
        self._resuming: asyncio.Task[None] | None = None
        if window.outgoing.flows:
            self._resuming = asyncio.get_running_loop().create_task(self._watch(self._resume))
        else:
            self._resumed.set()
        self.retained = retained
        self._hold: LiveHold | None = None
        self.send_retained()
        cursor.wake_with(self._feed_own)

    def open_source(self, cursor: Cursor, shared: Subscription) -> None:
        """Begins to send from a group's cursor, or goes on with another subscription."""
        if source := self._sources.get(cursor.consumer):
            source.shared = shared
        else:
            self._start(Source(cursor, shared))

    def open_all(self, sources: Iterator[tuple[Cursor, Subscription]]) -> None:
        """Opens many sources, slice by slice."""
        self._opening = asyncio.get_running_loop().create_task(self._open_all(sources))

    async def _open_all(self, sources: Iterator[tuple[Cursor, Subscription]]) -> None:
        slice_ = Slice()
        for cursor, shared in sources:
            self.open_source(cursor, shared)
            if slice_.is_over:
                await slice_.give_way()

    def _feed_own(self) -> None:
        self._feed_from(self._cursor)

    def _feed_from(self, cursor: OwnCursor | RetainedCursor) -> None:
        """Messages wait in a cursor."""
        source = self._sources.get(cursor.consumer) or Source(cursor)
        if source.task is None:
            self._start(source)

    def _start(self, source: Source) -> None:
        self._sources[source.cursor.consumer] = source
        source.task = asyncio.get_running_loop().create_task(self._watch(partial(self._feed, source)))

    def close_source(self, cursor: Cursor) -> None:
        """Stops fetching from a group's cursor; messages in flight stay in flight until they are acknowledged.

        A batch that was fetched and waits for room is still sent: its flows have begun.
        """
        if source := self._sources.pop(cursor.consumer, None):
            source.is_closed = True
            if not source.is_sending:
                self._stop(source, keep=source.sent)
            self._closed = [source, *(one for one in self._closed if one.held or one.is_sending)]

    def stop(self) -> None:
        """Stops sending: each cursor gets back the messages that the client did not acknowledge."""
        for task in (self._opening, self._resuming):
            if task is not None:
                task.cancel()
        self._cursor.wake_with(None)
        if self._hold is not None:
            self._hold.close()
        for source in [*self._sources.values(), *self._closed]:
            self._stop(source, keep=set())
        self._sources.clear()
        if self._dropped:
            logger.warning("%s was slow: %d QoS 0 messages to it were dropped", self._window.name, self._dropped)

    def send_retained(self) -> None:
        """Sends the retained messages that wait."""
        if self.retained is not None and self.retained.has_waiting:
            self._feed_from(self.retained)

    def send_again(self, packet_identifiers: list[int]) -> None:
        """Sends messages of the session's cursor again, in their order, before any new one.

        The other end has answered them, and does not have them. QoS 2 flows go again from the start.
        """
        source = self._sources.setdefault(self._cursor.consumer, Source(self._cursor))
        flows = self._window.outgoing.flows
        begun = [flows[one] for one in packet_identifiers if one in flows]
        self._window.protocol.expect_pubrecs([flow.packet_identifier for flow in begun])
        source.again = sorted([*source.again, *begun], key=lambda flow: flow.position, reverse=True)
        numbers = [one for one in packet_identifiers if one not in flows]
        source.held.difference_update(numbers)
        source.sent.difference_update(numbers)
        self._window.forget(numbers)
        self._cursor.redeliver(numbers)
        self._feed_from(self._cursor)

    @property
    def live_hold(self) -> LiveHold:
        """Holds the session's live messages back behind the retained ones. A client that only publishes has none."""
        if self._hold is None:
            self._hold = LiveHold(self._window.room, self.send_now)
        return self._hold

    def may_send(self, topic: str) -> bool:
        """Whether the client is there and may have messages of a topic now."""
        return self._window.protocol.connected and self._window.may_receive(topic)

    def offer(self, message: Message, grant: Grant) -> None:
        """Sends a QoS 0 message, behind the retained messages of the subscriptions before it."""
        hold = self._hold
        if hold is not None and hold.steps and hold.keep(message, grant, QOS_0_BACKLOG_MAX - self._window.port.backlog):
            self._supersede_retained(message)  # the store may have it as the retained one by then
        else:
            self.send_now(message, grant)

    def send_now(self, message: Message, grant: Grant) -> None:
        """Sends a QoS 0 message if the line has room for it; drops it if not."""
        window = self._window
        if not self.may_send(message.topic):
            return
        self._supersede_retained(message)
        if window.room.is_too_much(window.port.backlog, QOS_0_BACKLOG_MAX, len(message.payload)):
            if not self._dropped:
                logger.warning("%s is slow: QoS 0 messages to it are dropped", self._window.name)
            self._dropped += 1
            window.drop(drops.EVICTED, message)
            return
        for copy in copies_of(self._cursor, message, grant._replace(qos=0)):
            window.publish(message, copy)
        window.flush()

    def hold_back(self, message: Message) -> None:
        """Notes that the conditions of a link hold a message of QoS 0 back."""
        self._window.drop(drops.FILTERED, message)

    async def _watch(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await work()
        except OSError:
            pass  # the line has ended; the connection learns it from its own reading
        except Exception as error:
            if not isinstance(error, sqlite3.Error | WireError):
                logger.exception("%s: unexpected failure", self._window.name)
            self._failed(f"stored messages cannot be sent: {error}")

    async def resumed(self) -> None:
        """Waits until the flows of earlier connections go on; flows that begin before that would be taken for these."""
        await self._resumed.wait()

    async def _resume(self) -> None:
        """Goes on with the flows of earlier connections: PUBRELs first, then PUBLISHes again [MQTT-4.4.0-1].

        Messages of the session's cursor go again in their order among its QoS 1 messages [MQTT-4.6.0-1].
        """
        released, begun = await self._window.outgoing.resume()
        self._window.protocol.expect_pubrecs([flow.packet_identifier for flow in begun])
        for flow in released:
            release_again(self._window, flow)
        own: list[qos2.Flow] = []
        for flow in begun:
            if flow.source == self._cursor.consumer and not flow.topic:
                own.append(flow)
            else:
                with self._window.room.reservation() as reservation:
                    await reservation.begin()
                    await send_again(self._window, flow)
        if own:
            source = self._sources.setdefault(self._cursor.consumer, Source(self._cursor))
            source.again = sorted(own, key=lambda flow: flow.position, reverse=True)
            self._feed_from(self._cursor)
        self._window.flush()
        self._resumed.set()

    def _supersede_retained(self, message: Message) -> None:
        if self.retained is not None:
            self.retained.supersede(message)

    def _is_superseded(self, source: Source, message: Message) -> bool:
        """Whether the client has had a newer message in the place of a retained one."""
        return isinstance(source.cursor, RetainedCursor) and message.topic in source.cursor.superseded

    async def _feed(self, source: Source) -> None:
        await self._resumed.wait()
        while not source.is_closed and await self._fetch_and_send(source):
            if source.shared:
                await asyncio.sleep(0)  # a member that waited meanwhile gets the next ones
        source.task = None

    async def _fetch_and_send(self, source: Source) -> bool:
        """Fetches and sends; returns whether there was anything. It keeps no message in memory when it has returned."""
        with self._window.room.reservation() as reservation:
            pieces = await self._fetch(source, reservation)
            if not pieces and not source.again:
                return False
            await self._send_pieces(source, pieces)
            return True

    async def _send_pieces(self, source: Source, pieces: Sequence[Piece]) -> None:
        window = self._window
        if not pieces:
            await send_again_up_to(window, source, sys.maxsize)
        deliveries = self._send_runs(source, pieces)
        if not deliveries:
            window.flush()
            return
        source.is_sending = True
        source.held.update([delivery.packet_identifier for delivery in deliveries])
        if self._hold is None or not self._hold.steps or source.cursor is not self._cursor:
            await self._send_all(source, deliveries)
        else:
            for part in self._hold.apart(deliveries):
                if self._hold.holds(part[0].position):
                    await send_again_up_to(window, source, part[0].position)
                    window.flush()
                    await self._hold.wait(part[0].position)
                await self._send_all(source, part)
        source.is_sending = False

    async def _send_all(self, source: Source, deliveries: list[Delivery]) -> None:
        window = self._window
        if shared := source.shared:
            deliveries = [_by(shared, delivery) for delivery in deliveries]
        if (most := max(1, window.protocol.maximum_qos_peer)) < 2:
            deliveries = [delivery._replace(qos=min(delivery.qos, most)) for delivery in deliveries]
        flows, copies = await self._begin_flows(source, deliveries)
        if flows:  # many senders have waited for one commit
            await window.wait_for_line()
        sent = 0 if source.shared or source.again else self._send_together(source, deliveries, flows)
        for delivery in deliveries[sent:]:
            if source.again:
                is_taken = delivery.packet_identifier in window.outgoing.flows  # by one of them, perhaps
                await send_again_up_to(window, source, sys.maxsize if is_taken else delivery.position)
            if isinstance(source.cursor, Cursor) and not delivery.dup:  # a neighbour may know it, without a copy
                self._supersede_retained(delivery.message)
            if flow := flows.get(delivery.packet_identifier):
                await window.wait_for_room()  # meanwhile a newer message may have gone
                if self._is_superseded(source, delivery.message):
                    window.outgoing.complete([flow.packet_identifier])
                else:
                    for copy in (flow, *copies.get(delivery.packet_identifier, ())):
                        await self._publish_once(delivery.message, copy)
            elif delivery.qos < 2:
                await self._send(source, delivery)
        window.flush()

    async def _fetch(self, source: Source, reservation: Reservation) -> Sequence[Piece]:
        """Fetches when the client has read nearly all that came before, and its owner has room for more."""
        cursor = source.cursor
        if isinstance(cursor, RetainedCursor) and not cursor.needs_window:
            await self._window.wait_for_line()
        else:
            await self._window.wait_for_room()
        await reservation.begin()
        pieces = await self._fetch_from(source, reservation)
        if not source.again:
            reservation.needs(_size_of(source, pieces))
        return pieces

    async def _fetch_from(self, source: Source, reservation: Reservation) -> Sequence[Piece]:
        cursor = source.cursor
        if isinstance(cursor, RetainedCursor):
            return await cursor.fetch()
        room = self._window.protocol.send_quota or 1
        if isinstance(cursor, GroupCursor):
            reservation.needs(0)  # it may take long until messages come
            return await cursor.fetch(min(SHARED_FETCH_MOST, room), self._window.may_receive)
        most = min(FETCH_MOST, room)
        if isinstance(cursor, RunCursor) and self._window.run_qos_max and not source.again:
            return await cursor.fetch_pieces(most, most, self._window.run_qos_max)
        return await cursor.fetch_now(most)

    def _send_runs(self, source: Source, pieces: Sequence[Piece]) -> list[Delivery]:
        """Sends the runs at the beginning, each in one piece; returns the other deliveries."""
        if not isinstance(source.cursor, RunCursor):
            return cast("list[Delivery]", pieces)
        waits = self._hold is not None and self._hold.steps and source.cursor is self._cursor
        deliveries: list[Delivery] = []
        for piece in pieces:
            if not isinstance(piece, DeliveryRun):
                deliveries.append(piece)
            elif deliveries or waits or not self._window.publish_run(piece):
                deliveries += piece.deliveries()
            else:
                identifiers = piece.packet_identifiers
                source.held.update(identifiers)
                source.sent.update(identifiers)
                self._window.await_pubacks(identifiers, partial(self._finish, source))
        return deliveries

    def _send_together(self, source: Source, deliveries: list[Delivery], flows: dict[int, qos2.Flow]) -> int:
        """Sends the plain deliveries of one QoS at the beginning in one piece; returns how many these are."""
        qos = deliveries[0].qos
        plain = plain_ones(qos, deliveries)
        if qos == 2:
            plain = list(takewhile(lambda delivery: delivery.packet_identifier in flows, plain))
            identifiers = [flows[delivery.packet_identifier].packet_identifier for delivery in plain]
        else:
            identifiers = [delivery.packet_identifier for delivery in plain]
        if not plain or not self._window.publish_together(plain, identifiers, qos):
            return 0
        if qos == 1:
            source.sent.update(identifiers)
            self._window.await_pubacks(identifiers, partial(self._finish, source))
        return len(plain)

    async def _publish_once(self, message: Message, flow: qos2.Flow) -> None:
        await self._window.wait_for_room()
        self._window.publish_once(message, Grant(2, flow.retain, flow.identifiers), flow.packet_identifier)

    async def _begin_flows(
        self, source: Source, deliveries: list[Delivery]
    ) -> tuple[dict[int, qos2.Flow], dict[int, list[qos2.Flow]]]:
        """Notes the QoS 2 messages among some deliveries; then they are the session's and no longer the cursor's.

        Returns the flows by the delivery's packet identifier, and the flows of further copies. Copies at a lower QoS
        have arrived then: the cursor hands them out again only as long as the message is its.
        """
        works = [] if isinstance(source.cursor, RetainedCursor) else self._window.take(deliveries)
        chosen = [one for one in deliveries if one.qos == 2 and self._is_wanted(source, one)]
        if not chosen:
            return {}, {}
        chosen, further = await apart(self._window, source.cursor, chosen)
        numbers = [delivery.packet_identifier for delivery in chosen]
        source.held.difference_update(numbers)
        if isinstance(source.cursor, RetainedCursor):
            works.append(source.cursor.hand_over(numbers))
        extra = [one for some in further.values() for one in some]
        begun = await self._window.outgoing.begin(source.cursor, [*chosen, *extra], self._window.inflight, *works)
        return begun, {one: [begun[copy.packet_identifier] for copy in some] for one, some in further.items()}

    async def _send(self, source: Source, delivery: Delivery) -> None:
        packet_identifier = None
        if not delivery.qos:
            await self._window.wait_for_line()
        elif source.shared or isinstance(source.cursor, RetainedCursor):
            await self._window.wait_for_room()
            packet_identifier = self._window.next_identifier()
        else:
            packet_identifier = delivery.packet_identifier
            await self._window.wait_for_room(packet_identifier)
        dup = delivery.dup and delivery.qos > 0 and not source.shared
        own = Grant(delivery.qos, delivery.retain, delivery.identifiers)
        if not self._is_wanted(source, delivery):
            return
        grant, *others = copies_of(source.cursor, delivery.message, own, delivery.position)
        if others:
            await self._send_copies(source, delivery, [grant, *others])
            return
        sent = self._window.publish(delivery.message, grant, packet_identifier, dup=dup)
        finish = partial(self._finish, source, [delivery.packet_identifier])  # without the message, which may be large
        if sent and packet_identifier is not None:
            source.sent.add(delivery.packet_identifier)
            self._window.await_pubacks([packet_identifier], lambda _: finish())
        else:
            finish()

    async def _send_copies(self, source: Source, delivery: Delivery, grants: list[Grant]) -> None:
        """Sends copies of a message at QoS 0 and 1; it has arrived when all of them have."""
        if any(grant.qos for grant in grants):
            source.sent.add(delivery.packet_identifier)
        finish = partial(self._finish, source, [delivery.packet_identifier])
        await publish_copies(self._window, delivery.message, grants, finish)

    def _is_wanted(self, source: Source, delivery: Delivery) -> bool:
        """Whether the client may have a message, as its rules are now, and its delivery has begun or may begin.

        What a member of a group may not have goes to another one.
        """
        cursor = source.cursor
        if self._is_superseded(source, delivery.message):
            pass
        elif not self._window.may_receive(delivery.message.topic):
            if isinstance(cursor, GroupCursor):
                source.held.discard(delivery.packet_identifier)
                cursor.refuse(delivery)
                return False
            if isinstance(cursor, Cursor):
                self._window.drop(drops.FILTERED, delivery.message)
        elif (delivery.dup and not source.shared) or self._window.is_wanted(delivery.message):
            return True
        self._finish(source, [delivery.packet_identifier])
        return False

    def _finish(self, source: Source, finished: list[int]) -> None:
        source.sent.difference_update(finished)
        held = finished if source.held.issuperset(finished) else [one for one in finished if one in source.held]
        source.held.difference_update(held)
        source.cursor.acknowledge_all(held)

    def _stop(self, source: Source, keep: set[int]) -> None:
        if source.task is not None:
            source.task.cancel()
            source.task = None  # each knows the other: apart they are freed at once
        if source.held - keep:
            source.cursor.redeliver(source.held - keep)
            source.held &= keep


def _size_of(source: Source, pieces: Sequence[Piece]) -> int:
    """Returns how many bytes some pieces have at most."""
    if len(pieces) > 1 and not isinstance(source.cursor, RetainedCursor):
        return HAND_OUT_BYTES_MAX
    return sum([piece.batch.size if isinstance(piece, DeliveryRun) else piece.size for piece in pieces])


def _by(shared: Subscription, delivery: Delivery) -> Delivery:
    """A group's delivery, as its member has subscribed."""
    return granted(delivery, grant_by([shared], delivery.message))
