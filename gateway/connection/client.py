"""One connected client: what its packets do to its session, the log and its subscriptions."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from gateway.auth.permissions import Permissions, Topics
from gateway.connection.accepted import Accepted
from gateway.connection.intake.publish_answers import PublishAnswers
from gateway.connection.intake.publish_in import Intake, Realtime
from gateway.connection.intake.publish_rules import PublishRules
from gateway.connection.multicast import MulticastMember
from gateway.connection.neighbour import LinkLine, ListeningEnd
from gateway.connection.services import Services
from gateway.connection.subscribe import SubscribeRefused, Subscribing
from gateway.delivery import Peer, Sender, Window
from gateway.log_fields import about
from gateway.network.topology import BadLinkStates
from gateway.sessions.session import Session
from gateway.store import retained
from gateway.streams.naming import Naming
from wire import reasons
from wire.bulk.connection import Acknowledgements
from wire.codec.packets import (
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
)
from wire.identity import KEEP, RECEIVE, find_wishes
from wire.packet_types import PUBCOMP, PUBREC, PUBREL

logger = logging.getLogger(__name__)


class Answer(NamedTuple):
    """What answers a SUBSCRIBE: reason codes, a reason string, and keys of multicast groups as user properties.

    ``follow`` does what comes behind the SUBACK.
    """

    codes: list[int]
    problem: str
    keys: list[tuple[str, str]]
    follow: Callable[[], Awaitable[None]]


class Client:
    """Serves a client from its CONNACK on, until its connection ends.

    Args:
        services: the parts of the gateway that it uses.
        accepted: its connection.
        session: its session.
        permissions: what the client may do.
        topics: the topic names that may take the fast path.
        end: this end of the link, if the client is a neighbour.
    """

    __slots__ = (
        "_accepted",
        "_answers",
        "_end",
        "_permissions",
        "_sender",
        "_subscribing",
        "_window",
        "intake",
        "services",
        "session",
    )

    def __init__(
        self,
        services: Services,
        accepted: Accepted,
        session: Session,
        permissions: Permissions,
        topics: Topics,
        end: ListeningEnd | None = None,
    ) -> None:
        self.services, self._accepted, self.session, self._permissions = services, accepted, session, permissions
        self._end = end
        protocol, port, connect = accepted.protocol, accepted.port, accepted.protocol.connect_packet
        wishes = [] if connect is None else find_wishes(connect.properties)
        keeps, publishing = KEEP in wishes, services.publishing
        self._answers = PublishAnswers(protocol, session, services.log, accepted.order)
        rules = PublishRules(
            publishing, self._answers, permissions, topics, accepted.disconnect, keeps_identities=keeps
        )
        self.intake: Intake = Intake(
            services,
            self._answers,
            rules,
            copies=services.copies.of(session.client_id) if end is not None else None,
            realtime=_realtime(accepted, end),
            waiting=accepted.waiting,
            begin_again=rules.begin_again,
            heard=accepted.heard,
        )
        self._subscribing: Subscribing | None = None  # most devices only publish
        has_identity = RECEIVE in wishes
        hop = services.log.hop if keeps and has_identity else ""  # it is a route
        line = port if end is None else LinkLine(port, end)
        naming, may_receive = Naming(services.stream, session), session.cursor.rights.may_receive
        peer = Peer(accepted.name, protocol, line, accepted.flush, may_receive, has_identity, hop=hop, naming=naming)
        owner, outgoing = session.holding.owner, session.outgoing
        shift, room = services.shared.shifts.of(owner), services.shared.rooms.of(owner)
        self._window: Window = Window(
            peer, services.log, session.cursor.consumer, outgoing, shift, services.counters, accepted.flight, room
        )
        retained = session.new_retained() if session.owed else None
        self._sender = Sender(self._window, services.log, session.cursor, accepted.fail, retained)
        services.subscribers.feed(session, self._sender)

    async def handle(self, packet: Packet) -> None:
        """Acts on a packet. Raises sqlite3.Error when what it asks for could not be saved."""
        match packet:
            case Publish():
                if self._end is None or not self._hear(packet, self._end):
                    self.intake.handle_publish(packet)
            case Pubrel():
                self._answers.release([packet.packet_identifier])
            case Puback():
                self._note_refusal(packet)
                self._note_answers([packet.packet_identifier])
                self._window.handle_pubacks([packet.packet_identifier])
            case Pubrec():
                self._note_answers([packet.packet_identifier])
                self._handle_pubrec(packet)
            case Pubcomp():
                self._window.handle_pubcomps([packet.packet_identifier])
            case Subscribe():
                self.intake.note_packet()
                await self._handle_subscribe(packet)
            case Unsubscribe():
                self.intake.note_packet()
                await self._handle_unsubscribe(packet)

    def _hear(self, packet: Publish, end: ListeningEnd) -> bool:
        """Takes what a neighbour tells of its network; returns whether a packet is that."""
        try:
            return end.hear(packet)
        except BadLinkStates as error:
            self._accepted.fail(f"the neighbour's link states: {error}")
            return True

    def take(self, step: Acknowledgements) -> None:
        """Acts on many acknowledgements of one kind, on the fast path."""
        if step.packet_type == PUBREL:
            self._answers.release(step.identifiers)
        elif step.packet_type == PUBREC:
            self._note_answers(step.identifiers)
            self._window.handle_pubrecs(step.identifiers, self._answers.add)
        elif step.packet_type == PUBCOMP:
            self._window.handle_pubcomps(step.identifiers)
        else:
            self._note_answers(step.identifiers)
            self._window.handle_pubacks(step.identifiers)

    def _note_answers(self, identifiers: list[int]) -> None:
        """The client has answered messages: so all has arrived that was sent before these."""
        if self.session.released is not None and self.session.released.probe is not None:
            self.session.released.note_answers(identifiers, self._accepted.protocol.identifiers_in_use)

    @property
    def may_read_on(self) -> bool:
        """Whether the gateway may read more from this client."""
        return self.services.log.writer.has_room and self.intake.may_read_on

    def end_batch(self) -> None:
        """Submits the work of the packets that came together."""
        self._answers.end()

    def stop(self) -> None:
        """Ends with its connection. What came over it is written before anything that comes over the next one."""
        self._answers.end()
        self.intake.stop()
        self._sender.stop()
        if self._subscribing is not None:
            self._subscribing.stop()
        if self._end is not None:
            self._end.stop()

    def refuse_publish(self, packet: Publish, reason_code: int, problem: str) -> None:
        """Refuses a message that is in no stream that is served here; ``problem`` says why."""
        self.intake.refuse_unplaced(packet, reason_code, problem)

    async def _handle_subscribe(self, packet: Subscribe) -> None:
        if answer := await self.subscribe(packet):
            if self._accepted.protocol.connected:
                self._accepted.protocol.suback(packet.packet_identifier, answer.codes, answer.problem, answer.keys)
            await answer.follow()

    async def subscribe(self, packet: Subscribe, naming: str = "") -> Answer | None:
        """Subscribes; returns the answer, None if the connection has ended.

        ``naming`` is how the client has named the stream. Raises sqlite3.Error.
        """
        await self._answers.settle()  # what the client has published before is older than its subscription
        if self._has_ended():
            return None  # its session may have ended too
        self.session.retained_for(self._sender).expect()
        if self._end is None:  # over a link, one client's subscription would hold the messages of all others back
            self._sender.live_hold.begin(self.services.log.head)
        problem = ""
        subscribing = self._subscriptions()
        try:
            codes, owed = await subscribing.subscribe(packet, naming)
        except SubscribeRefused as error:
            codes, owed = [reasons.IMPLEMENTATION_SPECIFIC_ERROR] * len(packet.filters), []
            problem = str(error)
        self.services.network.tell()
        if self._end is not None:
            self._end.note_subscribed([topic_filter for topic_filter, _ in packet.filters])
        self._note_refused_filters(packet, codes, problem)
        keys = [] if problem or self._has_ended() else subscribing.hand_out(packet)
        return Answer(codes, problem, keys, partial(self._send_old, subscribing, packet, codes, owed))

    def _subscriptions(self) -> Subscribing:
        """Returns what changes the client's subscriptions. Most devices only publish, and have none."""
        if self._subscribing is None:
            of_client = self.services, self.session, self._permissions
            multicast = MulticastMember(*of_client, self._accepted)
            self._subscribing = Subscribing(*of_client, multicast)
        return self._subscribing

    async def _send_old(
        self, subscribing: Subscribing, packet: Subscribe, codes: list[int], owed: list[retained.Owed]
    ) -> None:
        """Sends retained messages behind a SUBACK, and the gateway's own."""
        if self._has_ended():
            self.session.owe(owed)
            return
        cursor = self.session.retained_for(self._sender)
        cursor.add(owed)
        self._sender.send_retained()
        async for message, grant in subscribing.announced(packet, codes):
            if self._has_ended():
                break
            self._sender.send_now(message, grant)
        if self._end is None:
            cursor.call_behind(self._sender.live_hold.end)

    async def _handle_unsubscribe(self, packet: Unsubscribe) -> None:
        codes = await self.unsubscribe(packet)
        if self._accepted.protocol.connected:
            self._accepted.protocol.unsuback(packet.packet_identifier, codes)

    async def unsubscribe(self, packet: Unsubscribe) -> list[int]:
        """Ends subscriptions; returns the reason codes of the UNSUBACK. Raises sqlite3.Error."""
        others = None if self._end is None else self._end.others_than(packet)
        if self._end is not None:
            self.services.subscribers.withdraw(self.session, packet.filters if others is None else others)
        codes = await self._subscriptions().unsubscribe(packet.filters if others is None else others)
        self.services.network.tell()
        return codes if others is None else [reasons.SUCCESS]

    def _note_refused_filters(self, packet: Subscribe, codes: list[int], problem: str) -> None:
        """Logs one line for a SUBSCRIBE, however many of its filters were refused."""
        refused = [place for place, code in enumerate(codes) if code >= reasons.UNSPECIFIED_ERROR]
        if refused:
            first, code = packet.filters[refused[0]][0], codes[refused[0]]
            session, peer = self.session, self._accepted.port.peer
            client = {"client": session.client_id, "user": session.user or "", "peer": peer}
            what = {"filter": first, "refused": len(refused), "reason": problem or reasons.describe(code)}
            logger.warning("subscription refused", extra=about(**client, **what))

    def _has_ended(self) -> bool:
        """Whether the connection has ended, as it may while a method waits."""
        return not self._accepted.protocol.connected

    def _handle_pubrec(self, packet: Pubrec) -> None:
        if self._note_refusal(packet):
            self._window.handle_pubcomps([packet.packet_identifier])
        else:
            self._window.handle_pubrecs([packet.packet_identifier], self._answers.add)

    def _note_refusal(self, packet: Puback | Pubrec) -> bool:
        refused = packet.reason_code >= reasons.UNSPECIFIED_ERROR
        if refused:
            logger.warning("%s refused a message: %s", self._accepted.name, reasons.describe(packet.reason_code))
        return refused


def _realtime(accepted: Accepted, end: ListeningEnd | None) -> Realtime:
    if accepted.port.visitor.is_realtime:
        return Realtime.ALL
    return Realtime.NONE if end is None else Realtime.MARKED
