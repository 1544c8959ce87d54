"""A client that was let in: each kind of packet that it sends, to the room that handles it."""

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gateway.access import Permissions
from gateway.hot.answers import Answers
from gateway.hot.inflow import Publishes
from gateway.hot.topics import Topics
from gateway.intake import Intake
from gateway.logs import about
from gateway.port import Port
from gateway.sender import Sender
from gateway.session import Session
from gateway.subscribing import Subscribing
from gateway.turn import Turn
from gateway.window import Window
from wire import reasons
from wire.bulk import BulkServerConnection
from wire.packet_types import PUBCOMP, PUBREC, PUBREL
from wire.packets import Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Unsubscribe

if TYPE_CHECKING:
    from gateway.broker import Broker

logger = logging.getLogger(__name__)


class Client:
    """Serves a client from its CONNACK on, until its connection ends.

    Args:
        broker: where its messages and subscriptions go.
        protocol: the connection, already accepted.
        port: the line under it.
        session: its session.
        permissions: what it may do.
        topics: learns what it may publish to the hot path.
        name: who it is, for the log.
        answered: called when answers wait to be sent.
        failed: called with a text when something of ours does not work; ends the connection.
        disconnect: ends the connection with a reason code.
    """

    def __init__(
        self,
        broker: "Broker",
        protocol: BulkServerConnection,
        port: Port,
        session: Session,
        permissions: Permissions,
        topics: Topics,
        name: str,
        *,
        answered: Callable[[], None],
        failed: Callable[[str], None],
        disconnect: Callable[[int], None],
    ) -> None:
        self._protocol = protocol
        self._session = session
        self._name = name
        self._peer = port.peer
        self._turn = Turn(broker.log, answered, failed)
        self._intake = Intake(broker, protocol, session, permissions, self._turn, topics, disconnect)
        self._subscribing = Subscribing(broker, session, permissions)
        self._window = Window(
            protocol,
            port,
            broker.log,
            session.outgoing,
            session.cursor.consumer,
            name,
            permissions.may_receive,
            broker.counters,
            broker.shifts.of(session.account.owner),
            flush=answered,
        )
        self._sender = Sender(self._window, broker.log, session.cursor, session.owed, session.account, name, failed)
        broker.subscribers.feed(session, self._sender)

    async def handle(self, packet: Packet) -> None:
        """Acts on a packet. Raises sqlite3.Error when what it asks for could not be saved."""
        match packet:
            case Publish():
                self._intake.handle_publish(packet)
            case Pubrel():
                self._intake.handle_pubrel(packet)
            case Puback():
                self._note_refusal(packet)
                self._window.handle_pubacks([packet.packet_identifier])
            case Pubrec():
                self._handle_pubrec(packet)
            case Pubcomp():
                self._window.handle_pubcomps([packet.packet_identifier])
            case Subscribe():
                self.note_packet()
                await self._handle_subscribe(packet)
            case Unsubscribe():
                self.note_packet()
                codes = await self._subscribing.unsubscribe(packet)
                if self._protocol.connected:
                    self._protocol.unsuback(packet.packet_identifier, codes)

    def note_packet(self) -> None:
        """A packet has come that is no PUBLISH and no acknowledgement: it counts for the client's rate."""
        self._intake.note_packet()

    def may_take(self, topics: Iterable[str]) -> bool:
        """Whether messages of some topics may go the hot path now."""
        return self._intake.may_take(topics)

    def take(self, step: Publishes | Answers) -> None:
        """The same for many packets of the hot path."""
        if isinstance(step, Publishes):
            self._intake.take_publishes(step)
        elif step.packet_type == PUBREL:
            self._intake.take_pubrels(step.identifiers)
        elif step.packet_type == PUBREC:
            self._take_pubrecs(step.identifiers)
        elif step.packet_type == PUBCOMP:
            self._window.handle_pubcomps(step.identifiers)
        else:
            self._window.handle_pubacks(step.identifiers)

    def end_turn(self) -> None:
        """All that came in one reading was handled: what has to be durable is written now, together."""
        self._turn.end()

    async def wait_for_subscribers(self) -> None:
        """Waits while much that the owner has published at QoS 0 is not given out."""
        await self._intake.wait_for_subscribers()

    async def wait_for_room(self) -> None:
        """Waits while nobody should read more from this client."""
        await self._intake.wait_for_room()

    def stop(self) -> None:
        """Its connection has ended. What has come over it is written before anything that comes over the next one."""
        self._turn.end()
        self._intake.stop()
        self._sender.stop()

    async def _handle_subscribe(self, packet: Subscribe) -> None:
        await self._turn.settle()  # what the client has published before is not new to it
        if self._has_ended():
            return  # and its session with it, perhaps
        self._sender.expect_retained()
        codes, owed = await self._subscribing.subscribe(packet)
        self._note_refused_filters(packet, codes)
        if not self._has_ended():
            self._protocol.suback(packet.packet_identifier, codes)
            self._sender.send_retained(owed)
            async for message, grant in self._subscribing.announced(packet, codes):
                if self._has_ended():
                    break
                self._sender.send_now(message, grant)
        else:
            self._session.owed.update(dict.fromkeys(owed))

    def _note_refused_filters(self, packet: Subscribe, codes: list[int]) -> None:
        """A line for each SUBSCRIBE, however many of its filters were refused."""
        refused = [place for place, code in enumerate(codes) if code >= reasons.UNSPECIFIED_ERROR]
        if refused:
            first, code = packet.filters[refused[0]][0], codes[refused[0]]
            who = {"client": self._session.client_id, "user": self._session.user or "", "peer": self._peer}
            what = {"filter": first, "refused": len(refused), "reason": reasons.describe(code)}
            logger.warning("subscription refused", extra=about(**who, **what))

    def _has_ended(self) -> bool:
        """Whether the connection has ended while we waited."""
        return not self._protocol.connected

    def _handle_pubrec(self, packet: Pubrec) -> None:
        if self._note_refusal(packet):
            self._window.handle_pubcomps([packet.packet_identifier])
        else:
            self._take_pubrecs([packet.packet_identifier])

    def _take_pubrecs(self, packet_identifiers: list[int]) -> None:
        notes = self._session.outgoing.note_received(packet_identifiers)
        self._turn.add(lambda: self._window.release(packet_identifiers), *notes)

    def _note_refusal(self, packet: Puback | Pubrec) -> bool:
        refused = packet.reason_code >= reasons.UNSPECIFIED_ERROR
        if refused:
            logger.warning("%s refused a message: %s", self._name, reasons.describe(packet.reason_code))
        return refused
