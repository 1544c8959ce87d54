"""What a route imports: stored and synced like a client's messages, and acknowledged only then.

Each message has an identity: its own if it brought one of ours, and otherwise what the transport makes of its place in
the other system. So one that comes again is known, and acknowledged without being stored again. What cannot be a
message here goes to the quarantine, and the rest goes on.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from gateway.routes import Intake, PublishAnswers, PublishRules, Services, Topics
from gateway.store import AckOrder
from uplink.foreign.aside import Aside
from uplink.foreign.config import ImportingConfig
from uplink.foreign.headers import decode
from uplink.foreign.names import NoName
from uplink.foreign.transport import Arrival
from uplink.queue.route_queue import RouteQueue
from wire.codec.packets import MQTT_5, Publish
from wire.errors import WireError
from wire.identity import decode_identity
from wire.packet_types import PUBREC
from wire.reasons import SUCCESS, UNSPECIFIED_ERROR, describe
from wire.topics import matches

WAITING_MOST = 1024
IDENTIFIER_MAX = 65_535
ROOM_S = 0.05  # between two looks whether messages still wait for room in the store
FULL = "what comes waits: the store, the queue of a subscriber, or what a topic filter may have, is full"

logger = logging.getLogger(__name__)


class Import:
    """Takes what comes over one connection. For the intake it is the connection that answers.

    Args:
        config: the route.
        queue: what the store has for the route.
        services: the gateway's parts, which check, limit and store the messages.
        failed: called with a text when the store fails: the connection has to end.

    ``connected`` and ``protocol_level`` are for the intake.
    """

    protocol_level = MQTT_5

    def __init__(
        self,
        config: ImportingConfig,
        queue: RouteQueue,
        services: Services,
        failed: Callable[[str], None],
    ) -> None:
        self.connected = True
        self._config = config
        self._queue = queue
        self._services = services
        self._names = config.names
        self._filters = config.wanted
        self._answers = PublishAnswers(self, queue.publisher, services.log, AckOrder(self._note_taken, failed))
        self._made: set[str] = set()  # the origins of identities that the transport makes
        permissions = services.rights_of_route(config.local_user, queue.publisher.client_id, self._made)
        self._intake = Intake(
            services,
            self._answers,
            PublishRules(services.publishing, self._answers, permissions, Topics()),
            copies=services.copies.of(queue.publisher.client_id),  # so that identities are known
        )
        self._counted = 0
        self._identifier = 0
        self._waiting: dict[int, Arrival] = {}
        self._aside = Aside(services.log.folder, f"route {queue.name}", failed)

    def take(self, arrivals: Sequence[Arrival]) -> None:
        """Takes messages that came together."""
        for arrival in arrivals:
            self._take(arrival)
        self._answers.end()
        self._note_taken()

    async def wait_for_room(self) -> None:
        """Waits while many messages wait, or the route's owner sends too fast."""
        await self._services.log.writer.wait_for_room()
        await self._intake.wait_for_pace()
        while self.connected and not self._has_room:
            self._queue.state.receive_note = FULL if self._intake.has_waiting else ""
            await asyncio.sleep(ROOM_S)
        self._queue.state.receive_note = ""

    @property
    def _has_room(self) -> bool:
        return not self._intake.has_waiting and len(self._waiting) < WAITING_MOST and self._aside.has_room

    def highest_known(self, origin: str, epoch: int) -> int:
        """Returns the highest sequence number of these that is stored, 0 if none is."""
        return self._services.log.seen.highest(origin, epoch)

    async def stop(self) -> None:
        """Takes nothing more. What came is written, and acknowledged if the connection still stands."""
        self._intake.stop()
        await self._answers.settle()
        self.connected = False
        await self._aside.settle()
        self._queue.state.receive_note = ""

    def answer_all(self, packet_type: int, identifiers: list[int], reason_code: int = SUCCESS) -> None:
        """Messages are durable, or known already."""
        if packet_type == PUBREC:  # the other system has no second step: it follows at once
            self._answers.release(identifiers)
            self._answers.end()
        for identifier in identifiers:
            if arrival := self._waiting.pop(identifier, None):
                arrival.acknowledge()

    def has_unanswered(self) -> bool:
        """Nothing that goes to the other system is answered here."""
        return False

    def identifiers_in_use(self) -> list[int]:
        """No message goes that way by a packet identifier."""
        return []

    def puback(self, identifier: int, reason_code: int = SUCCESS, _reason: str = "") -> None:
        """A message is durable, or will never be taken."""
        if reason_code < UNSPECIFIED_ERROR:
            self.answer_all(0, [identifier])
        elif arrival := self._waiting.pop(identifier, None):
            self._set_aside(arrival, f"the gateway refuses it: {describe(reason_code)}")

    def pubrec(self, identifier: int, reason_code: int = SUCCESS, reason: str = "") -> None:
        """Does the same for a message of QoS 2."""
        if reason_code < UNSPECIFIED_ERROR:
            self.answer_all(PUBREC, [identifier])
        else:
            self.puback(identifier, reason_code, reason)

    def _take(self, arrival: Arrival) -> None:
        if arrival.fault:
            self._set_aside(arrival, arrival.fault)
            return
        try:
            topic = self._names.topic_of(arrival.parcel.name)
            qos = self._qos_of(topic)
            if qos is None and self._config.covering:
                arrival.acknowledge()  # a filter that covers others has brought it
                return
            if qos is None:
                raise ValueError(f"no `topic` of [[route.incoming]] matches {topic!r}")
            packet = self._publish(arrival, topic, qos)
        except (NoName, WireError, ValueError) as error:
            self._set_aside(arrival, str(error))
            return
        if packet.packet_identifier is not None:
            self._waiting[packet.packet_identifier] = arrival
        self._intake.handle_publish(packet)
        if packet.packet_identifier is None:
            arrival.acknowledge()

    def _qos_of(self, topic: str) -> int | None:
        """Returns the QoS of messages of a topic, None if they are not wanted."""
        return max((qos for topic_filter, qos in self._filters if matches(topic_filter, topic)), default=None)

    def _publish(self, arrival: Arrival, topic: str, qos: int) -> Publish:
        """Returns the PUBLISH that a message would come in. Raises ValueError, WireError: it cannot be one."""
        parcel = arrival.parcel
        properties = decode(parcel.headers, self._identity_of(arrival), self._config.import_headers)
        packet = Publish(topic, parcel.payload, qos, False, False, self._next_identifier() if qos else None, properties)
        size, most = len(packet.encode(MQTT_5)), self._services.config.limits.maximum_packet_size
        if size > most:
            raise ValueError(f"it has {size} bytes, and the gateway takes {most} at most [limits.maximum_packet_size]")
        return packet

    def _identity_of(self, arrival: Arrival) -> str:
        """Returns the identity that a message has. Where access rules hold, it brings none that a transport makes."""
        identity = arrival.parcel.identity
        if self._config.local_user is None:
            return identity
        if arrival.made:
            self._made.add(decode_identity(arrival.made)[0])
        if identity and decode_identity(identity)[0] in self._made:
            return arrival.made
        return identity

    def _next_identifier(self) -> int:
        while True:
            self._identifier = self._identifier % IDENTIFIER_MAX + 1
            if self._identifier not in self._waiting:
                return self._identifier

    def _set_aside(self, arrival: Arrival, reason: str) -> None:
        """Puts what cannot be a message here into the quarantine, and acknowledges it then."""
        logger.warning("route %s: a message that came is set aside: %s: %s", self._queue.name, arrival.place, reason)
        self._queue.state.note_error(f"{arrival.place}: {reason}")
        if self._config.preserve_undelivered == "never":
            arrival.acknowledge()
        else:
            self._aside.put(arrival, reason)

    def _note_taken(self) -> None:
        taken = self._intake.taken
        self._queue.state.received_messages += taken - self._counted
        self._counted = taken
