"""Incoming messages: PUBLISH → stored and synced → PUBACK or PUBREC; PUBREL → released and synced → PUBCOMP."""

import enum
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

from gateway.auth.permissions import Access, Permissions
from gateway.connection.known import KnownMessages, mask_of
from gateway.connection.publisher import Answering, Publisher
from gateway.connection.services import Services
from gateway.connection.waiting import Waiting
from gateway.limits import Verdict
from gateway.log_fields import about
from gateway.loop.pace import Pace
from gateway.message import Message, message_from
from gateway.network.conditions import Conditions
from gateway.sessions.copies import Copies
from gateway.sessions.released import digests_in
from gateway.store import AckBatch, Masks, PublishBatch, SeenNote, Standing, Work, drops, masks_of_batch, qos2, retained
from gateway.topic_memory import remember
from wire.bulk.content_digest import content_digest, digests_of
from wire.bulk.property_block import GATEWAY_MARK, marker_of
from wire.bulk.publishes import cut_contents
from wire.bulk.reader import Publishes
from wire.codec.packets import MQTT_5, Publish
from wire.identity import IDENTITY_PROPERTY, find_user_property
from wire.link_numbers import STATEMENT_TOPICS
from wire.packet_types import PUBACK, PUBCOMP, PUBREC
from wire.reasons import NO_MATCHING_SUBSCRIBERS, NOT_AUTHORIZED, QUOTA_EXCEEDED, SUCCESS, UNSPECIFIED_ERROR, describe

TOPICS_REMEMBERED = 4096
ORIGINS_REMEMBERED = 1024
ORIGIN_SAID = 64  # characters of an origin in a reason string
logger = logging.getLogger(__name__)


class Topics(dict[bytes, str]):
    """The topic names, by their bytes, that a client has published to and may publish to now; all are well-formed.

    Topic names of statements are not among them: each message's identity decides whether it may be published.
    ``origins`` has the origins that it has brought and may bring; with GATEWAY_MARK, gateways it vouches for.
    """

    __slots__ = ("_gateways", "_rules", "origins")

    def __init__(self) -> None:
        self._rules: object = None
        self._gateways = 0
        self.origins: dict[bytes, None] = {}

    def keep_to(self, access: Access) -> None:
        """Forgets all of them if the access rules have changed, or one more gateway is known in the network."""
        gateways = len(access.other_gateways)
        if access.rules is not self._rules or gateways != self._gateways:
            self._rules, self._gateways = access.rules, gateways
            self.clear()
            self.origins.clear()

    def learn(self, message: Message) -> None:
        """Learns from a message that was accepted; it has the identity that it brought, or none yet."""
        if not message.topic.startswith(STATEMENT_TOPICS):
            remember(self, message.topic.encode(), message.topic, TOPICS_REMEMBERED)
        if message.origin:
            remember(self.origins, message.origin.encode(), None, ORIGINS_REMEMBERED)
            for name in (message.received_by, *message.gateways_of_links):
                remember(self.origins, GATEWAY_MARK + name.encode(), None, ORIGINS_REMEMBERED)


class Realtime(enum.Enum):
    """Which of a connection's messages of QoS 0 are real-time ones: none, the messages that say so, or all."""

    NONE = "none"
    MARKED = "marked"
    ALL = "all"


class Intake:
    """Takes the messages that one client publishes over one connection, or that a route's broker sends.

    A broker that is told that a message does not fit drops it, and so none is refused because of a limit: it waits.

    Args:
        services: the parts of the gateway that it uses.
        protocol: the connection, already accepted.
        session: the client's session, or the route.
        permissions: what the client may publish.
        acks: stores the messages, and answers them when they are durable.
        topics: learns the topic names that may take the fast path.
        disconnect: ends the connection with a reason code.
        keeps_identities: whether the client would rather have a message refused than get a new identity.
        is_from_broker: whether a route's broker sends the messages.
        copies: the copies of the link, if another gateway sends the messages. One that came over a link before is not
            stored again.
        conditions: what messages have to pass on arrival, if anything. One that does not is accepted, and leaves a
            range.
        realtime: which messages are real-time ones.
        waiting: the connection's messages that cannot be stored yet, if its streams share them: what comes behind a
            message that waits waits too, since PUBACKs are sent in the order of their PUBLISHes [MQTT-4.6.0-2].
        begin_again: ends the connection, for the peer to send again what was forgotten because too much waited. None:
            nothing is forgotten, as acknowledgements do not come behind the messages.

    ``taken`` is how many messages were taken.
    """

    __slots__ = (
        "_acks",
        "_awaits_commit",
        "_begin_again",
        "_conditions",
        "_copies",
        "_disconnect",
        "_has_offered",
        "_has_replaced",
        "_is_from_broker",
        "_keeps_identities",
        "_known",
        "_note",
        "_noted_in",
        "_own_trail",
        "_pace",
        "_permissions",
        "_protocol",
        "_realtime",
        "_remark",
        "_said",
        "_seen",
        "_services",
        "_session",
        "_topics",
        "_waiting",
        "taken",
    )

    def __init__(
        self,
        services: Services,
        protocol: Answering,
        session: Publisher,
        permissions: Permissions,
        acks: AckBatch,
        topics: Topics,
        disconnect: Callable[[int], None],
        *,
        keeps_identities: bool = False,
        is_from_broker: bool = False,
        copies: Copies | None = None,
        conditions: Conditions | None = None,
        realtime: Realtime = Realtime.NONE,
        waiting: Waiting | None = None,
        begin_again: Callable[[], None] | None = None,
    ) -> None:
        self._begin_again = begin_again
        self._realtime = realtime
        self._services = services
        self._protocol = protocol
        self._session = session
        self._permissions = permissions
        self._acks = acks
        self._topics = topics
        self._disconnect = disconnect
        self._waiting = waiting or Waiting()
        self._has_offered = False  # a message of QoS 0
        self._said = SUCCESS  # the reason code that was logged last
        self._pace = Pace(services.shared.paces, session.holding.owner)
        self._keeps_identities = keeps_identities
        self._is_from_broker = is_from_broker
        self._seen = services.log.seen
        self._own_trail = marker_of(services.log.hop)
        self._note: SeenNote | None = None  # of the messages in this batch
        self._noted_in = 0
        self._copies = copies
        self._known = KnownMessages(services, session.client_id, copies)
        self._conditions = conditions
        self._awaits_commit = False  # of a message with the same identity as the first that waits
        self.taken = 0
        self._has_replaced = False
        self._remark = ""  # a reason string for the next acknowledgement

    def handle_publish(self, packet: Publish) -> None:
        self._services.counters.note_received(packet.qos, len(packet.payload))
        self._pace.note(1)
        came_ms = int(time.time() * 1000)
        message = message_from(packet, self._session.client_id, self._services.config.name, came_ms)
        message.owner = self._session.holding.owner
        if self._realtime is not Realtime.NONE:
            message.is_realtime = message.take_realtime() or self._realtime is Realtime.ALL
        reason_code = self._check(packet, message, came_ms)
        if reason_code == SUCCESS and message.origin:  # the first message to each topic takes this path
            self._services.shared.devices.note_identity(self._session.client_id, message.origin, message.epoch)
        if reason_code != SUCCESS:
            self._refuse(packet, message, reason_code)
        elif message.has_passed(self._services.log.hop):
            self._services.counters.messages_returned += 1
            self._accept_unstored(packet)
        elif self._conditions is not None and not self._conditions.passes(message):
            self._services.log.drop(drops.FILTERED, drops.GATEWAY, message)
            self._accept_unstored(packet)
        elif packet.packet_identifier is None:
            if self._copies is not None and message.origin and self._known.is_repeated_qos_0(message):
                return
            self._has_offered = True
            self.taken += 1
            work = self._services.publishing.publish(message, self._copies)
            if work and work[0] is message:
                self._acks.add(_answer_nothing, *work)
            else:
                for one in work:
                    self._services.log.defer(one)
        elif self._waiting.holds_up or not self._take(packet, message):
            self._add_waiting(packet, message, came_ms)

    def _accept_unstored(self, packet: Publish, *work: Work) -> None:
        """Accepts a message and does not store it: its conditions hold it back, or no rule allows it, which ``work``
        notes, or this gateway has stored it and handed it on before. Otherwise gateways that lead to each other would
        pass it round for ever.
        """
        identifiers = [] if packet.packet_identifier is None else [packet.packet_identifier]
        if packet.qos == 1:
            self._acks.add(lambda: self._answer(PUBACK, identifiers), *work)
        elif packet.qos:
            digests = [content_digest(packet.topic, packet.payload)]
            self._acks.add(lambda: self._received(identifiers, SUCCESS, "", digests), *work)

    def refuse_unplaced(self, packet: Publish, reason_code: int, problem: str) -> None:
        """Refuses a message that is in no stream that the client may use here; ``problem`` says why."""
        self._services.counters.note_received(packet.qos, len(packet.payload))
        self._pace.note(1)
        if reason_code != self._said:
            self._said = reason_code
            what = about(client=self._session.client_id, topic=packet.topic, reason=problem)
            logger.warning("messages refused: %s", describe(reason_code), extra=what)
        if packet.packet_identifier is None or self._protocol.protocol_level != MQTT_5:
            self._disconnect(reason_code)
            return
        identifier, answer = packet.packet_identifier, PUBACK if packet.qos == 1 else PUBREC
        self._acks.add(lambda: self._answer(answer, [identifier], reason_code, remark=problem))

    def note_packet(self) -> None:
        """Counts a packet other than a PUBLISH or an acknowledgement."""
        self._pace.note(1)

    @property
    def has_waiting(self) -> bool:
        """Whether messages wait."""
        return bool(self._waiting.messages)

    async def wait_for_room(self) -> None:
        """Waits while many messages wait that no acknowledgement of the peer may make room for, or the owner sends too
        fast.
        """
        await self._waiting.room.wait()
        await self.wait_for_pace()

    async def wait_for_pace(self) -> None:
        """Waits while the owner sends too fast, for its rate or for the subscribers of QoS 0 messages."""
        await self._pace.wait()
        if self._has_offered:
            self._has_offered = False
            await self._services.subscribers.wait_for(self._session.holding.owner)

    async def wait_for_subscribers(self) -> None:
        """Waits while many of the owner's QoS 0 messages are in memory and not handed to their subscribers."""
        if self._has_offered:
            await self._services.subscribers.wait_for_many(self._session.holding.owner)

    def stop(self) -> None:
        """Ends with the connection: nothing waits any more."""
        self._waiting.room.set()
        self._pace.stop()

    def _take(self, packet: Publish, message: Message) -> bool:
        """Takes or refuses a message of QoS 1 or 2; returns False while it has to wait."""
        packet_identifier = packet.packet_identifier
        assert packet_identifier is not None
        masks: Masks = {}
        standing = Standing.NEW
        self._awaits_commit = False
        if packet.dup and self._copies is not None and self._copies.go_with_connection:
            message.retain = False  # it may have been cleared since; if not, it is sent anew
        if self._copies is not None and message.origin:
            masks = mask_of(message)
            standing = self._seen.standing(masks)
            self._awaits_commit = standing is Standing.PENDING
            if self._awaits_commit:
                return False
            is_resent = standing is Standing.STORED and packet.dup and packet.qos == 1
            if is_resent or self._known.is_repeated(message, standing):
                work: list[Work] = [retained.KeepCopy(message)] if message.retain and not message.payload else []
                self._answer_repeated(packet.qos, [packet_identifier], *work)
                return True
        verdict = self._services.limits.verdict(message.topic, message.owner, message.publisher)
        if self._is_from_broker:
            verdict = Verdict.WAIT if verdict is Verdict.REFUSE else verdict
        elif message.retain and not self._services.limits.may_keep(message):
            verdict = Verdict.REFUSE
        if verdict is Verdict.WAIT:
            return False
        if verdict is Verdict.REFUSE:
            self._refuse(packet, message, QUOTA_EXCEEDED)
            return True
        if standing is Standing.CONFLICT:
            self._known.tell_of_conflict(message)
        self._topics.learn(message)
        remark, self._remark = self._remark, ""
        self._store(message, packet.qos, [packet_identifier], masks, remark)
        return True

    def _store(
        self, part: Message | PublishBatch, qos: int, identifiers: list[int], masks: Masks, remark: str = ""
    ) -> None:
        """Stores one message or many of QoS 1 or 2, and then answers their packet identifiers.

        ``masks`` are the identities with which they came over a link, empty for others. What is wanted by no consumer
        here stays with its gateway, which may send it again: it is not stored, as a start would take it for known.
        """
        self.taken += len(identifiers)
        code = SUCCESS if self._is_wanted(next(iter(part.topics))) else NO_MATCHING_SUBSCRIBERS
        work = self._services.publishing.publish(part, self._copies)
        if masks and code == SUCCESS:
            work += self._note_seen(masks)
        elif masks:
            work.remove(part)
        copies = self._copies if isinstance(part, Message) and part.retain else None
        if copies is not None:
            (topic,) = part.topics
            self._acks.add(lambda: copies.note_kept(topic))
        if qos == 1:
            self._acks.add(lambda: self._answer(PUBACK, identifiers, code, remark=remark), *work)
        else:
            if self._session.durable:
                work.append(qos2.note_incoming(self._session.client_id, identifiers))
            digests = None
            if (released := self._session.released) is not None:
                digests = digests_in(part)
                work += released.note_incoming(identifiers, digests)
            self._acks.add(lambda: self._received(identifiers, code, remark, digests), *work)

    def _note_seen(self, masks: Masks) -> list[SeenNote]:
        """Notes identities with the messages that came together; returns the work to add for it: one for all of them.

        A work for each message would take a tenth of the time that storing the message takes.
        """
        if self._note is not None and self._noted_in == self._acks.gathering:
            self._seen.note_too(self._note, masks)
            return []
        self._note, self._noted_in = self._seen.note(masks), self._acks.gathering
        return [self._note]

    def _answer_repeated(self, qos: int, identifiers: list[int], *work: Work) -> None:
        """Accepts messages that came over a link before and are durable, and does not store them again.

        ``work`` clears a retained message, if one of them does: an older one may have come again before it.
        """
        self._services.counters.messages_duplicate += len(identifiers)
        if qos == 1:
            self._acks.add(lambda: self._answer(PUBACK, identifiers), *work)
        else:
            self._acks.add(lambda: self._received(identifiers, SUCCESS, ""), *work)

    def _is_wanted(self, topic: str) -> bool:
        """Decides between SUCCESS and "no matching subscribers"; only a server may send the latter [section 3.4.2.1]. A
        neighbour that sends what a summary asks for is not told: it would keep the message for a consumer.

        The takers are found now, so that they count for this client's slice and not for the commit.
        """
        if self._services.log.audience.takers(topic) or self._is_from_broker:
            return True
        is_in_summary = self._copies is not None and self._services.network.has_in_summary(topic)
        return is_in_summary or self._protocol.protocol_level != MQTT_5

    def _add_waiting(self, packet: Publish, message: Message, came_ms: int) -> None:
        waiting = self._waiting
        if waiting.has_forgotten or (waiting.are_many and self._reads_on()):
            waiting.has_forgotten = True
            return
        if not waiting.messages:
            self.wait_for_turn()
        waiting.add(self, packet, message, came_ms)
        if waiting.are_many and not self._reads_on():
            waiting.room.clear()

    def _reads_on(self) -> bool:
        """Whether more is read while many messages wait: acknowledgements come behind them, which may make room."""
        return self._begin_again is not None and (self._is_from_broker or self._protocol.has_unanswered())

    def _retry(self) -> None:
        """Takes the messages that have waited, in order, as far as there is room now."""
        waiting = self._waiting
        while waiting.messages and self._protocol.connected:
            intake, packet, message, came_ms = waiting.messages[0]
            if not intake.take_or_refuse(packet, message, came_ms):
                break
            waiting.remove_first()
        if not self._protocol.connected:
            waiting.messages.clear()  # none of them is acknowledged
        elif waiting.has_forgotten and not waiting.messages and self._begin_again is not None:
            self._acks.add(self._begin_again)
        self._acks.end()
        if waiting.messages:
            waiting.messages[0][0].wait_for_turn()
        waiting.holds_up = bool(waiting.messages) or waiting.has_forgotten
        if not waiting.are_many or self._reads_on():
            waiting.room.set()
        else:
            waiting.room.clear()

    def wait_for_turn(self) -> None:
        """Tries again when there may be room, or when the commit is over that decides whether a message is known."""
        (self._seen.wait if self._awaits_commit else self._services.limits.wait)(self._retry)

    def take_or_refuse(self, packet: Publish, message: Message, came_ms: int) -> bool:
        """Takes or refuses a message that has waited: the access rules may have changed meanwhile."""
        reason_code = self._check(packet, message, came_ms)
        if reason_code == SUCCESS:
            return self._take(packet, message)
        self._refuse(packet, message, reason_code)
        return True

    def may_take(self, topics: Iterable[str]) -> bool:
        """Whether messages of these topics may be stored now without a look at each of them."""
        if self._waiting.holds_up or not self._services.log.audience.learn(topics):
            return False
        if self._conditions is not None and any(map(self._conditions.concern, topics)):
            return False
        if len({self._is_wanted(topic) for topic in topics}) > 1:  # they get different answers
            return False
        limits, owner, publisher = self._services.limits, self._session.holding.owner, self._session.client_id
        return all(limits.verdict(topic, owner, publisher) is Verdict.TAKE for topic in topics)

    def take_publishes(self, publishes: Publishes) -> None:
        """Takes many messages of the fast path."""
        identifiers = publishes.identifiers
        self._services.counters.note_received(publishes.qos, publishes.payload_size, len(identifiers))
        self._pace.note(len(identifiers))
        batch = PublishBatch(
            publishes.packets,
            publishes.topics,
            len(identifiers),
            self._protocol.protocol_level,
            self._session.client_id,
            int(time.time() * 1000),
            self._services.config.name,
            bring_identities=bool(publishes.identities),
            content_size=publishes.content_size,
            owner=self._session.holding.owner,
        )
        if self._own_trail in batch.packets:
            self._take_each(batch, publishes)
        elif self._copies is not None and publishes.identities:
            self._take_new_ones(batch, publishes)
        else:
            self._store(batch, publishes.qos, identifiers, {})

    def _take_new_ones(self, batch: PublishBatch, publishes: Publishes) -> None:
        """Stores a batch that came over a link if all of it is new; otherwise looks at each message."""
        digests = digests_of(cut_contents(batch.packets, batch.level))
        masks = masks_of_batch(publishes.identities, digests)
        standing = Standing.MIXED if masks is None else self._seen.standing(masks)
        if masks is not None and standing is Standing.NEW:
            self._store(batch, publishes.qos, publishes.identifiers, masks)
        elif standing is Standing.STORED:
            self._answer_repeated(publishes.qos, publishes.identifiers)
        else:
            self._take_each(batch, publishes)

    def _take_each(self, batch: PublishBatch, publishes: Publishes) -> None:
        """Looks at each message of a batch."""
        for message, identifier in zip(batch.messages(), publishes.identifiers, strict=True):
            message.owner = batch.owner
            packet = Publish(message.topic, message.payload, message.qos, packet_identifier=identifier)
            if message.has_passed(self._services.log.hop):
                self._services.counters.messages_returned += 1
                self._accept_unstored(packet)
            elif self._waiting.holds_up or not self._take(packet, message):
                self._add_waiting(packet, message, batch.received_ms)

    def take_pubrels(self, identifiers: list[int]) -> None:
        """Releases messages of QoS 2."""
        notes: list[Work] = []
        if self._session.durable:
            notes.append(qos2.release_incoming(self._session.client_id, identifiers))
        if self._session.released is not None:
            notes += self._session.released.release(identifiers)
        self._acks.add(lambda: self._released(identifiers), *notes)

    def _check(self, packet: Publish, message: Message, came_ms: int) -> int:
        """Returns the reason code for a message that came at ``came_ms``: SUCCESS if it may be published."""
        origin = message.origin
        claimed = origin or find_user_property(packet.properties, IDENTITY_PROPERTY)
        reason_code, is_replaced = self._services.publishing.check(
            message,
            self._permissions,
            came_ms,
            is_unreadable=claimed is not None and not origin,
            keeps_identities=self._keeps_identities,
        )
        if is_replaced and not self._has_replaced:
            self._has_replaced = True
            self._tell_of_replaced(message.topic, origin, str(claimed))
        return reason_code

    def _tell_of_replaced(self, topic: str, origin: str, claimed: str) -> None:
        """Tells the client with its next acknowledgement, once per connection, that a message has a new identity."""
        self._remark = f"not its own identity: messages of {claimed[:ORIGIN_SAID]!r} get a new one here"
        what = about(client=self._session.client_id, topic=topic, origin=claimed)
        reason = "no rule lets the client bring it" if origin else "it cannot be read"
        logger.warning("identity replaced: %s", reason, extra=what)

    def _refuse(self, packet: Publish, message: Message, reason_code: int) -> None:
        """Refuses a message.

        MQTT 3.1.1 has no reason codes [3.1.1 MQTT-3.3.5-2]. What may be taken later stays unacknowledged there. What
        the rules deny is acknowledged once its range is durable, or its client would send it for ever.
        """
        if reason_code != self._said:
            self._said = reason_code
            what = about(client=self._session.client_id, topic=message.topic, origin=message.origin)
            logger.warning("messages refused: %s", describe(reason_code), extra=what)
        packet_identifier = packet.packet_identifier
        if packet_identifier and reason_code == NOT_AUTHORIZED and self._protocol.protocol_level != MQTT_5:
            self._accept_unstored(packet, self._services.publishing.set_aside(message, self._permissions))
            return
        self._services.publishing.refuse(message, self._permissions)
        if packet_identifier is None:
            if reason_code != NOT_AUTHORIZED:
                self._disconnect(reason_code)
        elif self._protocol.protocol_level != MQTT_5:
            if reason_code != QUOTA_EXCEEDED:
                self._disconnect(reason_code)
        else:
            answer = PUBACK if packet.qos == 1 else PUBREC
            self._acks.add(lambda: self._answer(answer, [packet_identifier], reason_code))

    def _received(
        self, identifiers: list[int], reason_code: int, remark: str, digests: Sequence[bytes] | None = None
    ) -> None:
        self._session.incoming.update(zip(identifiers, digests or repeat(b""), strict=False))
        if self._session.released is not None:
            self._session.released.note_received(identifiers)
        self._answer(PUBREC, identifiers, reason_code, remark=remark)

    def _released(self, identifiers: list[int]) -> None:
        for identifier in identifiers:
            self._session.incoming.pop(identifier, None)
        if self._session.released is not None:
            self._session.released.note_answered(identifiers, self._protocol.identifiers_in_use)
        self._answer(PUBCOMP, identifiers)

    def _answer(
        self, packet_type: int, identifiers: list[int], reason_code: int = SUCCESS, *, remark: str = ""
    ) -> None:
        """Sends PUBACKs, PUBRECs or PUBCOMPs; one with a remark, or with a reason code from 0x80 on, is alone."""
        if not self._protocol.connected:
            return
        if remark or reason_code >= UNSPECIFIED_ERROR:
            (identifier,) = identifiers
            answer = self._protocol.puback if packet_type == PUBACK else self._protocol.pubrec
            answer(identifier, reason_code, remark)
        else:
            self._protocol.answer_all(packet_type, identifiers, reason_code)


def _answer_nothing() -> None:
    """A message of QoS 0 is stored: it has no acknowledgement."""
