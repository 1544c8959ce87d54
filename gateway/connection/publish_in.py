"""Messages on their way in: PUBLISH → stored and synced → PUBACK or PUBREC; PUBREL → released and synced → PUBCOMP."""

import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gateway.access import Permissions
from gateway.hot.answers import encode_answers
from gateway.hot.inflow import Publishes
from gateway.hot.topics import Topics
from gateway.limits import Verdict
from gateway.logs import about
from gateway.message import Message, message_from
from gateway.pace import Pace
from gateway.signals import Signal
from gateway.store import incoming
from gateway.store.drops import GATEWAY, REJECTED
from gateway.store.run import Run
from gateway.turn import Turn
from wire.bulk import BulkServerConnection
from wire.identity import IDENTITY_PROPERTY, KEEP, find_user_property, find_wishes
from wire.packet_types import PUBACK, PUBCOMP, PUBREC
from wire.packets import MQTT_5, Publish, Pubrel
from wire.properties import PAYLOAD_FORMAT_INDICATOR, USER_PROPERTY
from wire.reasons import NOT_AUTHORIZED, PAYLOAD_FORMAT_INVALID, QUOTA_EXCEEDED, SUCCESS, describe
from wire.server import USER_PROPERTIES_MAX

if TYPE_CHECKING:
    from gateway.broker import Broker
    from gateway.session import Session

logger = logging.getLogger(__name__)

HELD_MOST = 2000  # messages; an MQTT 5 client stops by itself, at our Receive Maximum
ORIGIN_SAID = 64  # characters of an origin in a reason string
HELD_BYTES_MAX = 1024 * 1024  # of these; nothing is read from the client beyond either


class Intake:
    """Takes what one client publishes, for the time of one connection.

    Args:
        broker: where its messages go.
        protocol: the connection, already accepted.
        session: the client's session.
        permissions: what it may publish.
        turn: gathers what has to be durable before it is answered.
        topics: learns what the client may publish, for the hot path.
        disconnect: ends the connection with a reason code.
    """

    def __init__(
        self,
        broker: "Broker",
        protocol: BulkServerConnection,
        session: "Session",
        permissions: Permissions,
        turn: Turn,
        topics: Topics,
        disconnect: Callable[[int], None],
    ) -> None:
        self._broker = broker
        self._protocol = protocol
        self._session = session
        self._permissions = permissions
        self._turn = turn
        self._topics = topics
        self._disconnect = disconnect
        self._held: list[tuple[Publish, Message, int]] = []  # with the moment at which each came
        self._held_bytes = 0
        self._room = Signal()
        self._room.set()
        self._has_offered = False  # a message of QoS 0
        self._said = SUCCESS  # why a message was refused, as the log has it last
        self._pace = Pace(broker.paces, session.account.owner)
        connect = protocol.connect_packet
        self._keeps_identities = connect is not None and KEEP in find_wishes(connect.properties)
        self._has_replaced = False
        self._remark = ""  # for the client, with the next acknowledgement

    def handle_publish(self, packet: Publish) -> None:
        self._broker.counters.note_received(packet.qos, len(packet.payload))
        self._pace.note(1)
        came_ms = int(time.time() * 1000)
        message = message_from(packet, self._session.client_id, self._broker.config.name, came_ms)
        message.owner = self._session.account.owner
        reason_code = self._check(packet, message, came_ms)
        if reason_code == SUCCESS and message.origin:  # the first one to each topic comes this way
            self._broker.devices.note_identity(self._session.client_id, message.origin, message.epoch)
        if reason_code != SUCCESS:
            self._refuse(packet, message, reason_code)
        elif packet.packet_identifier is None:
            self._has_offered = True
            for work in self._broker.publishing.publish(message):
                self._broker.log.later(work)
        elif self._held or not self._take(packet, message):
            self._hold(packet, message, came_ms)

    def note_packet(self) -> None:
        """A packet has come that is no PUBLISH and no acknowledgement."""
        self._pace.note(1)

    async def wait_for_room(self) -> None:
        """Waits while so much is held back, or came so fast, that nobody should read more from this client."""
        await self._room.wait()
        await self._pace.wait()
        if self._has_offered:
            self._has_offered = False
            await self._broker.subscribers.wait_for(self._session.account.owner)

    async def wait_for_subscribers(self) -> None:
        """Waits while much that the owner has published at QoS 0 is not given out: it is in memory."""
        if self._has_offered:
            await self._broker.subscribers.wait_for_many(self._session.account.owner)

    def stop(self) -> None:
        """The connection has ended: nobody waits any more."""
        self._room.set()
        self._pace.stop()

    def _take(self, packet: Publish, message: Message) -> bool:
        """Takes a message of QoS 1 or 2, or refuses it for good; False while it has to wait."""
        verdict = self._broker.limits.verdict(message.topic, message.owner)
        if message.retain and not self._broker.limits.may_keep(message):
            verdict = Verdict.REFUSE
        if verdict is Verdict.WAIT:
            return False
        packet_identifier = packet.packet_identifier
        assert packet_identifier is not None
        if verdict is Verdict.REFUSE:
            self._refuse(packet, message, QUOTA_EXCEEDED)
            return True
        self._topics.learn(message)
        self._broker.log.audience.takers(message.topic)  # in its client's own time, not in that of the commit
        remark, self._remark = self._remark, ""
        work = self._broker.publishing.publish(message)
        if packet.qos == 1:
            self._turn.add(lambda: self._stored(packet_identifier, SUCCESS, remark), *work)
        else:
            notes = [incoming.add(self._session.client_id, [packet_identifier])] if self._session.durable else []
            self._turn.add(lambda: self._received(packet_identifier, remark), *work, *notes)
        return True

    def _hold(self, packet: Publish, message: Message, came_ms: int) -> None:
        if not self._held:
            self._broker.limits.wait(self._retry)
        self._held.append((packet, message, came_ms))
        self._held_bytes += message.size
        if self._holds_much():
            self._room.clear()

    def _holds_much(self) -> bool:
        return len(self._held) >= HELD_MOST or self._held_bytes > HELD_BYTES_MAX

    def _retry(self) -> None:
        """Takes what was held back, in order, as far as there is room now."""
        while self._held and self._protocol.connected and self._take_or_refuse(*self._held[0]):
            self._held_bytes -= self._held.pop(0)[1].size
        if not self._protocol.connected:
            self._held.clear()  # nobody was told that we have it
        self._turn.end()
        if self._held:
            self._broker.limits.wait(self._retry)
        if not self._holds_much():
            self._room.set()

    def _take_or_refuse(self, packet: Publish, message: Message, came_ms: int) -> bool:
        """The same for one that was held back: the access rules may be others by now."""
        reason_code = self._check(packet, message, came_ms)
        if reason_code == SUCCESS:
            return self._take(packet, message)
        self._refuse(packet, message, reason_code)
        return True

    def handle_pubrel(self, packet: Pubrel) -> None:
        packet_identifier = packet.packet_identifier
        notes = [incoming.remove(self._session.client_id, [packet_identifier])] if self._session.durable else []
        self._turn.add(lambda: self._released(packet_identifier), *notes)

    def may_take(self, topics: Iterable[str]) -> bool:
        """Whether there is room for messages of some topics now; else each has to be looked at."""
        if self._held or not self._broker.log.audience.learn(topics):
            return False
        limits, owner = self._broker.limits, self._session.account.owner
        return all(limits.verdict(topic, owner) is Verdict.TAKE for topic in topics)

    def take_publishes(self, publishes: Publishes) -> None:
        """The same for many messages of the hot path."""
        identifiers = publishes.identifiers
        self._broker.counters.note_received(publishes.qos, publishes.payload_size, len(identifiers))
        self._pace.note(len(identifiers))
        run = Run(
            publishes.packets,
            publishes.topics,
            len(identifiers),
            self._protocol.protocol_level,
            self._session.client_id,
            int(time.time() * 1000),
            self._broker.config.name,
            bring_identities=publishes.bring_identities,
            owner=self._session.account.owner,
        )
        if publishes.qos == 1:
            self._turn.add(lambda: self._answer_all(PUBACK, identifiers), run)
        else:
            notes = [incoming.add(self._session.client_id, identifiers)] if self._session.durable else []
            self._turn.add(lambda: self._all_received(identifiers), run, *notes)

    def take_pubrels(self, identifiers: list[int]) -> None:
        """The same for many PUBRELs of the hot path."""
        notes = [incoming.remove(self._session.client_id, identifiers)] if self._session.durable else []
        self._turn.add(lambda: self._all_released(identifiers), *notes)

    def _all_received(self, identifiers: list[int]) -> None:
        self._session.incoming.update(identifiers)
        self._answer_all(PUBREC, identifiers)

    def _all_released(self, identifiers: list[int]) -> None:
        self._session.incoming.difference_update(identifiers)
        self._answer_all(PUBCOMP, identifiers)

    def _answer_all(self, packet_type: int, identifiers: list[int]) -> None:
        if self._protocol.connected:
            self._protocol.answer_all(packet_type, identifiers, encode_answers(packet_type, identifiers))

    def _check(self, packet: Publish, message: Message, came_ms: int) -> int:
        """Returns as a reason code whether a message, which came then, may be published.

        One whose identity its client may not bring, or whose identity is none, gets a new one.
        """
        if not self._permissions.may_send(message) or self._broker.publishing.is_own(message.topic):
            return NOT_AUTHORIZED
        claimed = message.origin or find_user_property(packet.properties, IDENTITY_PROPERTY)
        if claimed is not None and (not message.origin or not self._permissions.may_bring(message)):
            if self._keeps_identities:
                return NOT_AUTHORIZED
            self._replace_identity(message, claimed, came_ms)
        if message.properties.get(PAYLOAD_FORMAT_INDICATOR) and not _is_text(message.payload):
            return PAYLOAD_FORMAT_INVALID
        if len(message.properties.get(USER_PROPERTY, ())) > USER_PROPERTIES_MAX:
            return QUOTA_EXCEEDED
        return SUCCESS

    def _replace_identity(self, message: Message, claimed: str, came_ms: int) -> None:
        """The client is told with its next acknowledgement, once over each connection: it may be a device of ours."""
        self._broker.counters.identities_replaced += 1
        if not self._has_replaced:
            self._has_replaced = True
            self._remark = f"not its own identity: messages of {claimed[:ORIGIN_SAID]!r} get a new one here"
            what = about(client=self._session.client_id, topic=message.topic, origin=claimed)
            reason = "no rule lets the client bring it" if message.origin else "it cannot be read"
            logger.warning("identity replaced: %s", reason, extra=what)
        message.renew(self._broker.config.name, came_ms)

    def _refuse(self, packet: Publish, message: Message, reason_code: int) -> None:
        """A message is not taken.

        MQTT 3.1.1 cannot say so [3.1.1 MQTT-3.3.5-2]: there it stays unacknowledged where it may be taken another time,
        and else the connection ends.
        """
        if reason_code != self._said:
            self._said = reason_code
            what = about(client=self._session.client_id, topic=message.topic, origin=message.origin)
            logger.warning("messages refused: %s", describe(reason_code), extra=what)
        if not self._permissions.may_bring(message):  # else a client could leave ranges in another one's name
            message.renew(message.received_by, message.received_ms)
        self._broker.log.drop(REJECTED, GATEWAY, message)
        packet_identifier = packet.packet_identifier
        if packet_identifier is None:
            if reason_code != NOT_AUTHORIZED:
                self._disconnect(reason_code)
        elif self._protocol.protocol_level != MQTT_5:
            if reason_code != QUOTA_EXCEEDED:
                self._disconnect(reason_code)
        elif packet.qos == 1:
            self._turn.add(lambda: self._stored(packet_identifier, reason_code))
        else:
            self._turn.add(lambda: self._refused(packet_identifier, reason_code))

    def _stored(self, packet_identifier: int, reason_code: int = SUCCESS, remark: str = "") -> None:
        if self._protocol.connected:
            self._protocol.puback(packet_identifier, reason_code, remark)

    def _received(self, packet_identifier: int, remark: str = "") -> None:
        self._session.incoming.add(packet_identifier)
        if self._protocol.connected:
            self._protocol.pubrec(packet_identifier, SUCCESS, remark)

    def _refused(self, packet_identifier: int, reason_code: int) -> None:
        if self._protocol.connected:
            self._protocol.pubrec(packet_identifier, reason_code)

    def _released(self, packet_identifier: int) -> None:
        self._session.incoming.discard(packet_identifier)
        if self._protocol.connected:
            self._protocol.pubcomp(packet_identifier)


def _is_text(payload: bytes) -> bool:
    """Whether it is well-formed UTF-8 [section 3.3.2.3.2]."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
