"""The QoS 2 messages on their way to one session's client; they outlive its connections, and a crash."""

import asyncio
from collections.abc import Callable, Container, Iterable
from typing import Any

from gateway.store.cursor import PACKET_IDENTIFIERS, Cursor
from gateway.store.database import Work
from gateway.store.delivery import Delivery
from gateway.store.flows import BEGUN, DONE, RELEASED, Flow, begin, end_all, move
from gateway.store.log import MessageLog


class Outgoing:
    """One session's flows by packet identifier, each noted before the packet that it allows is sent.

    Args:
        log: where they are noted.
        session: the session's client identifier.
        flows: those of before.
    """

    def __init__(self, log: MessageLog, session: str, flows: Iterable[Flow] = ()) -> None:
        self.flows = {flow.packet_identifier: flow for flow in flows}
        self._log = log
        self._session = session
        # Downwards: those that the session's cursor gives to QoS 1 messages come from the other end.
        self._latest = 1

    def next_identifier(self, taken: Container[int]) -> int:
        """Returns a packet identifier that is neither taken nor one of a flow."""
        while True:
            self._latest = self._latest - 1 or PACKET_IDENTIFIERS
            if self._latest not in taken and self._latest not in self.flows:
                return self._latest

    def flow(self, packet_identifier: int, cursor: Cursor, delivery: Delivery) -> Flow:
        """Returns the flow of a cursor's delivery, not begun yet."""
        is_gone = delivery.position <= self._log.gone
        return Flow(
            self._session,
            packet_identifier,
            cursor.consumer,
            delivery.position,
            retain=delivery.retain,
            identifiers=delivery.identifiers,
            missing=self._log.lose(cursor.consumer, delivery.message) if is_gone else None,
        )

    def begin(
        self, flows: list[Flow], begun: Callable[[bool], None], *work: Work, durable: bool
    ) -> asyncio.Future[list[Any]]:
        """Notes flows, and other work with them; once that is done their PUBLISHes may go out.

        Args:
            flows: those to begin.
            begun: called then, with True when it could not be done; whatever becomes of the connection meanwhile.
            work: what is written with them.
            durable: whether they come from what outlives this process, so that the notes have to as well.
        """
        for flow in flows:
            flow.is_noted = durable
            self.flows[flow.packet_identifier] = flow
            self._hold(flow)
        future = self._log.submit([begin(flows), *work] if durable else work)
        future.add_done_callback(lambda done: self._begun(flows, begun, failed=done.exception() is not None))
        return future

    def note_received(self, packet_identifiers: Iterable[int]) -> list[Work]:
        """Returns what has to be durable before their PUBRELs go out."""
        flows = (self.flows.get(packet_identifier) for packet_identifier in packet_identifiers)
        noted = [flow.packet_identifier for flow in flows if flow is not None and flow.is_noted]
        return [move(self._session, noted, RELEASED)] if noted else []

    def release(self, packet_identifiers: Iterable[int]) -> None:
        """That is durable: the messages are the client's now."""
        for packet_identifier in packet_identifiers:
            flow = self.flows.get(packet_identifier)
            if flow is not None and flow.state == BEGUN:
                flow.state = RELEASED
                self._let_go(flow)

    def complete(self, packet_identifiers: Iterable[int]) -> None:
        """Flows are at their end."""
        noted: list[int] = []
        for packet_identifier in packet_identifiers:
            flow = self.flows.pop(packet_identifier, None)
            if flow is not None:
                if flow.state == BEGUN:
                    self._let_go(flow)
                if flow.is_noted:
                    noted.append(packet_identifier)
        if noted:
            self._log.later(move(self._session, noted, DONE))

    def miss(self, flow: Flow) -> None:
        """A flow's message is gone, so that it cannot be sent again: where a full store dropped it, a range says so."""
        if flow.missing is not None:
            flow.missing.missed()
            flow.missing = None

    @property
    def unreceived(self) -> list[int]:
        """The positions of messages that the client has not said to have received."""
        return [flow.position for flow in self.flows.values() if flow.state == BEGUN and not flow.topic]

    def end(self) -> None:
        """The session ends, and with it all flows."""
        for flow in self.flows.values():
            if flow.state == BEGUN:
                self.miss(flow)
                self._let_go(flow)
        if self.flows:
            self._log.later(end_all(self._session))
        self.flows.clear()

    def _begun(self, flows: list[Flow], begun: Callable[[bool], None], failed: bool) -> None:
        if failed:
            for flow in flows:
                if self.flows.pop(flow.packet_identifier, None):
                    self._let_go(flow)
        begun(failed)

    def _hold(self, flow: Flow) -> None:
        if not flow.topic:
            self._log.hold(flow)

    def _let_go(self, flow: Flow) -> None:
        if not flow.topic:
            self._log.let_go(flow)
        if flow.missing is not None:
            flow.missing.arrived()
            flow.missing = None
