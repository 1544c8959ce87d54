"""The QoS 2 messages in flight to one session's client; their flows outlive its connections, and a crash."""

import asyncio
import sqlite3
from collections.abc import Callable, Container, Iterable
from typing import Any, Protocol

from gateway.message import Message
from gateway.store.consumers.cursor import PACKET_IDENTIFIERS
from gateway.store.consumers.delivery import Delivery
from gateway.store.log import MessageLog
from gateway.store.tables.log_rows import Work
from gateway.store.tables.qos2 import BEGUN, DONE, RELEASED, Flow, begin, begin_again, end_all, move


class FlowSource(Protocol):
    """Where the messages of new flows come from: a `Cursor`, or a cursor of retained messages."""

    @property
    def consumer(self) -> str:
        """The consumer that the messages come from, "" for retained messages."""

    @property
    def durable(self) -> bool:
        """Whether the source outlives this process, so that the flows have to as well."""

    def acknowledge_all(self, numbers: list[int], /) -> object:
        """The messages are the session's now."""

    def redeliver(self, numbers: list[int], /) -> None:
        """The source has the messages again, and hands them out again."""


def _no_numbers(_delivery: Delivery) -> str:
    """No route numbers a delivery."""
    return ""


class _Replaced:
    """A flow as the source of others."""

    durable = True

    def __init__(self, outgoing: "Outgoing", flow: Flow) -> None:
        self.consumer = flow.source
        self._outgoing = outgoing
        self._flow = flow

    def acknowledge_all(self, _numbers: list[int]) -> None:
        """The others have its messages."""
        self._outgoing.complete([self._flow.packet_identifier])

    def redeliver(self, _numbers: list[int]) -> None:
        """The others could not be stored: it keeps its messages."""


class Outgoing:
    """One session's flows by packet identifier. The log has a flow before the gateway sends its PUBLISH.

    Args:
        log: the log that stores the flows.
        session: the session's client identifier.
        flows: the session's flows that were in the file at the start, in the order in which they began. Identifiers
            go on behind the newest of them, also if it is done: some clients keep messages under former ones, and take
            a new message under one of them for the old one.

    ``number`` returns the route numbers of what a delivery carries, empty for none.
    """

    def __init__(self, log: MessageLog, session: str, flows: Iterable[Flow] = ()) -> None:
        stored = list(flows)
        self.flows = {flow.packet_identifier: flow for flow in stored if flow.state < DONE}
        self._has_rows = bool(stored)
        self._log = log
        self._session = session
        self.number: Callable[[Delivery], str] = _no_numbers
        self._beginning: asyncio.Future[list[Any]] | None = None
        # Identifiers are given downwards, because the session's cursor gives those of QoS 1 messages upwards.
        self._latest = stored[-1].packet_identifier if stored else 1

    def next_identifier(self, taken: Container[int]) -> int:
        """Returns a packet identifier that is neither taken nor one of a flow."""
        while True:
            self._latest = self._latest - 1 or PACKET_IDENTIFIERS
            if self._latest not in taken and self._latest not in self.flows:
                return self._latest

    async def begin(
        self, source: FlowSource, deliveries: list[Delivery], taken: Container[int], *work: Work, via: str = ""
    ) -> dict[int, Flow]:
        """Stores flows for messages that a source has handed out; then the messages are no longer the source's.

        The flows are stored even if the connection ends meanwhile.

        Args:
            source: the source; if the flows cannot be stored, it has the messages again.
            deliveries: the deliveries of the source.
            taken: packet identifiers that the flows must not get.
            work: what is written with the flows.
            via: the route number of a single message that has one.

        Returns:
            The flows by the delivery's packet identifier, once they are durable: then their PUBLISHes may be sent.

        Raises:
            sqlite3.Error: the flows could not be stored.
        """
        flows = {one.packet_identifier: self._flow(source, one, taken, via) for one in deliveries}
        for flow in flows.values():
            self._pin(flow)
        self._has_rows |= source.durable
        future = self._beginning = self._log.submit([begin(flows.values()), *work] if source.durable else work)
        future.add_done_callback(lambda done: self._begun(done, flows, source))
        await asyncio.shield(future)
        return flows

    async def replace(self, flow: Flow, deliveries: list[Delivery], taken: Container[int]) -> dict[int, Flow]:
        """Stores flows for the messages of another one, which ends in the same commit; see ``begin``."""
        end = move(self._session, [flow.packet_identifier], DONE)
        return await self.begin(_Replaced(self, flow), deliveries, taken, end)

    async def settle(self) -> None:
        """Returns once the newest flows are durable, or could not be stored: then their sources have the messages."""
        if self._beginning is not None:
            await asyncio.wait([self._beginning])

    async def resume(self) -> tuple[list[Flow], list[Flow]]:
        """Returns the flows of earlier connections, once these are settled: the released ones, and those with a PUBLISH
        to send again.
        """
        await self.settle()
        flows = self.flows.values()
        return [one for one in flows if one.state == RELEASED], [one for one in flows if one.state != RELEASED]

    async def message_of(self, flow: Flow) -> Message | None:
        """Returns the message of a flow without ``ranges``, None if it is gone.

        If a full store has evicted it, a range says so.

        Raises:
            sqlite3.Error: it cannot be read.
        """
        if not flow.topic:
            message = await self._log.read_one(flow.position)
        else:
            position, message = (await self._log.reader.read_retained([flow.topic]))[flow.topic] or (0, None)
            message = message if position == flow.position else None
        if message is None:
            self._miss(flow)
        return message

    async def messages_of(self, flow: Flow) -> list[tuple[int, Message]]:
        """Returns what is left of the messages in a column batch, by position. Messages that a full store has evicted
        leave ranges.

        Raises:
            sqlite3.Error: they cannot be read.
        """
        found: list[tuple[int, Message]] = []
        for first, last in flow.ranges:
            after = first - 1
            while after < last and (read := await self._log.read(after, last - after)):
                found += [one for one in read if self._log.gone < one[0] <= last]
                after = read[-1][0]
        self._miss(flow)
        return found

    async def begin_again(self, flows: list[Flow]) -> None:
        """Goes back to the PUBLISH of released flows: the other end has lost the messages. Returns once it is durable.

        Raises sqlite3.Error.
        """
        if not flows:
            return
        for flow in flows:
            flow.state = BEGUN  # at once: if this connection ends, the next one sends the PUBLISH
        noted = [flow.packet_identifier for flow in flows if flow.is_noted]
        try:
            await asyncio.shield(self._log.submit([begin_again(self._session, noted)]))
        except sqlite3.Error:  # after a kill they would be released ones: no PUBLISH may go until this is durable
            for flow in flows:
                flow.state = RELEASED
            raise

    def pass_over(self, flow: Flow) -> None:
        """Goes on with a flow as if its client had received the message; the client does not get it."""
        for note in self.note_received([flow.packet_identifier]):
            self._log.defer(note)
        self.release([flow.packet_identifier])

    def note_received(self, packet_identifiers: Iterable[int]) -> list[Work]:
        """Returns the work that has to be durable before the PUBRELs of some flows are sent."""
        flows = (self.flows.get(packet_identifier) for packet_identifier in packet_identifiers)
        noted = [flow.packet_identifier for flow in flows if flow is not None and flow.is_noted]
        return [move(self._session, noted, RELEASED)] if noted else []

    def release(self, packet_identifiers: Iterable[int]) -> None:
        """Notes that the work of ``note_received`` is durable: the log may delete messages that are not needed."""
        for packet_identifier in packet_identifiers:
            flow = self.flows.get(packet_identifier)
            if flow is not None and flow.state == BEGUN:
                flow.state = RELEASED
                if not flow.needs_message:
                    self._unpin(flow)

    def complete(self, packet_identifiers: Iterable[int]) -> None:
        """Ends flows whose PUBCOMP has come."""
        noted: list[int] = []
        for packet_identifier in packet_identifiers:
            flow = self.flows.pop(packet_identifier, None)
            if flow is not None:
                if flow.state == BEGUN or flow.needs_message:
                    self._unpin(flow)
                if flow.is_noted:
                    noted.append(packet_identifier)
        if noted:
            self._log.defer(move(self._session, noted, DONE))

    @property
    def begun(self) -> list[int]:
        """The packet identifiers of flows without a PUBREC."""
        return [flow.packet_identifier for flow in self.flows.values() if flow.state == BEGUN]

    @property
    def unreceived(self) -> list[int]:
        """The positions of messages without a PUBREC."""
        begun = [flow for flow in self.flows.values() if flow.state == BEGUN and not flow.topic]
        return [position for flow in begun for position in flow.positions]

    def end(self) -> None:
        """Ends all flows, as the session ends."""
        for flow in self.flows.values():
            if flow.state == BEGUN or flow.needs_message:
                self._miss(flow)
                self._unpin(flow)
        if self._has_rows:
            self._log.defer(end_all(self._session))
        self.flows.clear()

    def _flow(self, source: FlowSource, delivery: Delivery, taken: Container[int], via: str) -> Flow:
        is_retained = not source.consumer
        flow = Flow(
            self._session,
            self.next_identifier(taken),
            source.consumer,
            delivery.position,
            delivery.message.topic if is_retained else "",
            delivery.retain,
            delivery.identifiers,
            is_noted=source.durable,
            ranges=delivery.message.ranges,
            via=via or self.number(delivery),
        )
        if not is_retained and flow.first <= self._log.gone:
            for position, message in zip(flow.positions, delivery.message.messages(), strict=True):
                if position <= self._log.gone:
                    flow.note_evicted(self._log.eviction.lose(source.consumer, message))
        self.flows[flow.packet_identifier] = flow
        return flow

    def _begun(self, done: asyncio.Future[list[Any]], flows: dict[int, Flow], source: FlowSource) -> None:
        if self._beginning is done:
            self._beginning = None
        if done.exception() is None:
            source.acknowledge_all(list(flows))
            return
        for flow in flows.values():
            if self.flows.pop(flow.packet_identifier, None):
                self._unpin(flow)
        source.redeliver(list(flows))

    def _miss(self, flow: Flow) -> None:
        while flow.evicted:
            flow.evicted.pop().lost()

    def _pin(self, flow: Flow) -> None:
        if not flow.topic:
            self._log.consumers.keepers.pin(flow)

    def _unpin(self, flow: Flow) -> None:
        if not flow.topic:
            self._log.consumers.keepers.unpin(flow)
        while flow.evicted:
            flow.evicted.pop().arrived()
