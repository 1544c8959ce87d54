"""The delivery engine: cursor → window → PUBLISH → acknowledgement → cursor. The gateway as the sender of messages.

::

    session's cursor ──┐
    share group's ─────┼─ fetch ─► QoS 2: noted ─► room in the window and on the line? ─► PUBLISH ─► client
    …                  │                                                                                │
    cursor.acknowledge ◄─ QoS 1 ◄────────────────────────────────────── PUBACK, PUBREC → PUBREL, PUBCOMP ┘

The sender pulls: it fetches only what the client has room for, so a slow client holds back nobody but itself, and
what it has not fetched stays on disk.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

from gateway.holdings import Account
from gateway.hot.outflow import is_plain
from gateway.message import Message
from gateway.pace import Slice
from gateway.retained import RetainedFeed
from gateway.signals import Signal
from gateway.store.cursor import Cursor
from gateway.store.delivery import Delivery, Grant, grant_by
from gateway.store.drops import EVICTED, FILTERED
from gateway.store.flows import RELEASED, Flow
from gateway.store.log import MessageLog
from gateway.store.retained import Owed
from gateway.subscriptions import Subscription
from gateway.window import Window
from wire.errors import WireError

FETCH_MOST = 250  # deliveries between two looks at the window and the line
SHARED_FETCH_MOST = 8  # a member of a group takes few at a time, so that the others get their part
QOS_0_BACKLOG_MAX = 1024 * 1024  # bytes waiting on the line beyond which QoS 0 messages are dropped

logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Source:
    """A cursor that this client is fed from: its session's, or a group's by the subscription it has ``shared``.

    ``held`` are its deliveries that are not acknowledged, of which ``sent`` are on their way. ``is_sending`` while what
    was fetched together is being sent; ``is_closed`` says that nothing more is to be fetched. ``task`` fetches:
    from a group's cursor all the time, from the session's while there is something.
    """

    cursor: Cursor
    shared: Subscription | None = None
    held: set[int] = field(default_factory=set)
    sent: set[int] = field(default_factory=set)
    is_sending: bool = False
    is_closed: bool = False
    task: asyncio.Task[None] | None = None


class Sender:
    """Sends one client what its cursors hold, for the time of one connection.

    Args:
        window: the way to the client.
        log: where messages are read again that go on over this connection.
        cursor: the session's.
        owed: the retained messages that the session's subscriptions match and that it does not have yet.
        account: the session's, on which these are.
        client: who it is, for the log.
        failed: called with a text when messages cannot be read any more; ends the connection.
    """

    def __init__(
        self,
        window: Window,
        log: MessageLog,
        cursor: Cursor,
        owed: dict[Owed, None],
        account: Account,
        client: str,
        failed: Callable[[str], None],
    ) -> None:
        self._window = window
        self._log = log
        self._cursor = cursor
        self._client = client
        self._failed = failed
        self._sources: dict[str, _Source] = {}
        self._closed: list[_Source] = []  # with something on its way yet, perhaps
        self._resumed = Signal()
        self._dropped = 0
        self._opening: asyncio.Task[None] | None = None
        self._resuming: asyncio.Task[None] | None = None
        if window.outgoing.flows:
            self._resuming = asyncio.get_running_loop().create_task(self._watch(self._resume))
        else:
            self._resumed.set()
        self._retained = RetainedFeed(window, log, owed, account)
        self._sending_retained: asyncio.Task[None] | None = None
        if owed:
            self._send_retained()
        cursor.wake_with(self._wake)

    def open_source(self, cursor: Cursor, shared: Subscription) -> None:
        """Begins to feed the client from a group's cursor, or from now on by another subscription."""
        if source := self._sources.get(cursor.consumer):
            source.shared = shared
        else:
            self._start(_Source(cursor, shared))

    def open_all(self, sources: Iterator[tuple[Cursor, Subscription]]) -> None:
        """The same for many, slice by slice."""
        self._opening = asyncio.get_running_loop().create_task(self._open_all(sources))

    async def _open_all(self, sources: Iterator[tuple[Cursor, Subscription]]) -> None:
        slice_ = Slice()
        for cursor, shared in sources:
            self.open_source(cursor, shared)
            if slice_.is_over:
                await slice_.give_way()

    def _wake(self) -> None:
        """The session's cursor has something."""
        source = self._sources.get(self._cursor.consumer) or _Source(self._cursor)
        if source.task is None:
            self._start(source)

    def _start(self, source: _Source) -> None:
        self._sources[source.cursor.consumer] = source
        source.task = asyncio.get_running_loop().create_task(self._watch(partial(self._feed, source)))

    def close_source(self, cursor: Cursor) -> None:
        """Stops feeding from a group's cursor; what is on its way to the client stays there to be acknowledged.

        What was fetched and waits for room is still sent: the flows of it have begun.
        """
        if source := self._sources.pop(cursor.consumer, None):
            source.is_closed = True
            if not source.is_sending:
                self._stop(source, keep=source.sent)
            self._closed = [source, *(one for one in self._closed if one.held or one.is_sending)]

    def stop(self) -> None:
        """Stops feeding: each cursor has again what the client did not acknowledge."""
        for task in (self._opening, self._resuming, self._sending_retained):
            if task is not None:
                task.cancel()
        self._cursor.wake_with(None)
        for source in [*self._sources.values(), *self._closed]:
            self._stop(source, keep=set())
        self._sources.clear()
        if self._dropped:
            logger.warning("%s was slow: %d QoS 0 messages to it were dropped", self._client, self._dropped)

    def expect_retained(self) -> None:
        """What a SUBSCRIBE matches is being looked for, for ``send_retained``."""
        self._retained.expect()

    def send_retained(self, owed: list[Owed]) -> None:
        """Sends what new subscriptions match."""
        self._retained.add(owed)
        if owed and (self._sending_retained is None or self._sending_retained.done()):
            self._send_retained()

    def _send_retained(self) -> None:
        self._sending_retained = asyncio.get_running_loop().create_task(self._watch(self._feed_retained))

    def may_send(self, topic: str) -> bool:
        """Whether the client is there and may have messages of a topic now."""
        return self._window.protocol.connected and self._window.may_receive(topic)

    def send_now(self, message: Message, grant: Grant) -> None:
        """Sends a QoS 0 message if the line has room for it; drops it if not."""
        window = self._window
        if not self.may_send(message.topic):
            return
        self._retained.supersede(message)
        if window.port.backlog > QOS_0_BACKLOG_MAX:
            if not self._dropped:
                logger.warning("%s is slow: QoS 0 messages to it are dropped", self._client)
            self._dropped += 1
            window.drop(EVICTED, message)
            return
        window.publish(message, grant._replace(qos=0))
        window.flush()

    async def _watch(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await work()
        except OSError:
            pass  # the line has ended; the connection learns it from its own reading
        except (sqlite3.Error, WireError) as error:
            self._failed(f"stored messages cannot be sent: {error}")

    async def _resume(self) -> None:
        """Goes on with the flows of earlier connections: PUBRELs first, then PUBLISHes again [MQTT-4.4.0-1]."""
        flows = list(self._window.outgoing.flows.values())
        for flow in flows:
            if flow.state == RELEASED:
                self._window.protocol.pubrel(flow.packet_identifier)
        for flow in flows:
            if flow.state != RELEASED:
                await self._send_again(flow)
        self._window.flush()
        self._resumed.set()

    async def _send_again(self, flow: Flow) -> None:
        window = self._window
        await window.wait_for_room()
        message = await self._message_of(flow)
        if message is None or not window.may_receive(message.topic):
            # A client that has received it may have it; for another one, this identifier stands for nothing.
            window.protocol.pubrel(flow.packet_identifier)
            if message is not None:
                window.drop(FILTERED, message)
                for note in window.outgoing.note_received([flow.packet_identifier]):
                    self._log.later(note)  # with the range, so that this is told once
                window.outgoing.release([flow.packet_identifier])
            else:
                window.outgoing.miss(flow)
        else:
            grant = Grant(2, flow.retain, flow.identifiers)
            window.publish_once(message, grant, flow.packet_identifier, dup=True)

    async def _message_of(self, flow: Flow) -> Message | None:
        if not flow.topic:
            return await self._log.read_one(flow.position)
        position, message = (await self._log.read_retained([flow.topic]))[flow.topic] or (0, None)
        return message if position == flow.position else None

    async def _feed_retained(self) -> None:
        await self._resumed.wait()
        await self._retained.run()

    async def _feed(self, source: _Source) -> None:
        window = self._window
        await self._resumed.wait()
        while not source.is_closed:
            await window.wait_for_room()
            deliveries = await self._fetch(source)
            if not deliveries:
                break
            source.is_sending = True
            source.held.update(delivery.packet_identifier for delivery in deliveries)
            if shared := source.shared:
                deliveries = [_by(shared, delivery) for delivery in deliveries]
            flows = await self._begin_flows(source, deliveries)
            if flows:  # many have waited for one commit
                await window.wait_for_line()
            sent = 0 if source.shared else self._send_together(source, deliveries, flows)
            for delivery in deliveries[sent:]:
                self._retained.supersede(delivery.message)
                if flow := flows.get(delivery.position):
                    await window.wait_for_room()
                    grant = Grant(2, flow.retain, flow.identifiers)
                    window.publish_once(delivery.message, grant, flow.packet_identifier)
                elif delivery.qos < 2:
                    await self._send(source, delivery)
            window.flush()
            source.is_sending = False
            if source.shared:
                await asyncio.sleep(0)  # whoever waited meanwhile gets the next ones
        source.task = None

    async def _fetch(self, source: _Source) -> list[Delivery]:
        room = self._window.protocol.send_quota or 1
        if source.shared:
            return await source.cursor.fetch(min(SHARED_FETCH_MOST, room), self._window.may_receive)
        return await source.cursor.fetch_now(min(FETCH_MOST, room))

    def _send_together(self, source: _Source, deliveries: list[Delivery], flows: dict[int, Flow]) -> int:
        """Sends the plain ones of one QoS at the beginning by the hot path; returns how many these are."""
        qos = deliveries[0].qos
        plain = list(takewhile(partial(is_plain, qos), deliveries))
        if qos == 2:
            plain = list(takewhile(lambda delivery: delivery.position in flows, plain))
            identifiers = [flows[delivery.position].packet_identifier for delivery in plain]
        else:
            identifiers = [delivery.packet_identifier for delivery in plain]
        if not plain or not self._window.publish_together([one.message for one in plain], identifiers, qos):
            return 0
        if qos == 1:
            source.sent.update(identifiers)
            self._window.await_pubacks(identifiers, partial(self._finish, source))
        return len(plain)

    async def _begin_flows(self, source: _Source, deliveries: list[Delivery]) -> dict[int, Flow]:
        """Notes the QoS 2 messages among some deliveries; then they are the session's and no longer the cursor's."""
        chosen = [one for one in deliveries if one.qos == 2 and self._is_wanted(source, one)]
        if not chosen:
            return {}
        outgoing = self._window.outgoing
        identifiers = (self._window.next_identifier() for _ in chosen)
        flows = [outgoing.flow(next(identifiers), source.cursor, delivery) for delivery in chosen]
        handed_over = [delivery.packet_identifier for delivery in chosen]
        source.held.difference_update(handed_over)

        def begun(failed: bool) -> None:
            if failed:
                source.cursor.release(handed_over)
            else:
                source.cursor.acknowledge_all(handed_over)

        await asyncio.shield(outgoing.begin(flows, begun, durable=source.cursor.durable))
        return {flow.position: flow for flow in flows}

    async def _send(self, source: _Source, delivery: Delivery) -> None:
        packet_identifier = None
        if not delivery.qos:
            await self._window.wait_for_line()
        elif source.shared:
            await self._window.wait_for_room()
            packet_identifier = self._window.next_identifier()
        else:
            packet_identifier = delivery.packet_identifier
            await self._window.wait_for_room(packet_identifier)
        dup = delivery.dup and delivery.qos > 0 and not source.shared
        grant = Grant(delivery.qos, delivery.retain, delivery.identifiers)
        if not self._is_wanted(source, delivery):
            return
        sent = self._window.publish(delivery.message, grant, packet_identifier, dup=dup)
        if sent and packet_identifier is not None:
            source.sent.add(delivery.packet_identifier)
            finish = partial(self._finish, source)
            self._window.await_pubacks([packet_identifier], lambda _: finish([delivery.packet_identifier]))
        else:
            self._finish(source, [delivery.packet_identifier])

    def _is_wanted(self, source: _Source, delivery: Delivery) -> bool:
        """Whether the client may have a message, as its rules are now, and its delivery has begun or may begin.

        What a member of a group may not have goes to another one.
        """
        if not self._window.may_receive(delivery.message.topic):
            if source.shared:
                source.held.discard(delivery.packet_identifier)
                source.cursor.refuse(delivery)
                return False
            self._window.drop(FILTERED, delivery.message)
        elif (delivery.dup and not source.shared) or self._window.is_wanted(delivery.message):
            return True
        self._finish(source, [delivery.packet_identifier])
        return False

    def _finish(self, source: _Source, finished: list[int]) -> None:
        source.sent.difference_update(finished)
        held = [delivery for delivery in finished if delivery in source.held]
        source.held.difference_update(held)
        source.cursor.acknowledge_all(held)

    def _stop(self, source: _Source, keep: set[int]) -> None:
        if source.task is not None:
            source.task.cancel()
            source.task = None  # each knows the other: apart they are freed at once
        if source.held - keep:
            source.cursor.release(source.held - keep)
            source.held &= keep


def _by(shared: Subscription, delivery: Delivery) -> Delivery:
    """A group's delivery, as its member has subscribed."""
    grant = grant_by([shared], delivery.message)
    return delivery._replace(qos=grant.qos, retain=grant.retain, identifiers=grant.identifiers)
