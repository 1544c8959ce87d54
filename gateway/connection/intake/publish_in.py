"""Incoming messages: PUBLISH → stored and synced → PUBACK or PUBREC; PUBREL → released and synced → PUBCOMP."""

import enum
import time
from collections.abc import Callable, Collection

from gateway.connection.intake.known import KnownMessages, mask_of
from gateway.connection.intake.publish_answers import PublishAnswers
from gateway.connection.intake.publish_rules import PublishRules
from gateway.connection.intake.waiting import Waiting
from gateway.connection.services import Services
from gateway.limits import Verdict
from gateway.loop.pace import Pace
from gateway.message import Message, message_from
from gateway.network.conditions import Conditions
from gateway.sessions.copies import Copies
from gateway.sessions.devices import Heard
from gateway.store import Masks, PublishBatch, SeenNote, Standing, Work, drops, masks_of_batch, retained
from wire.bulk.content_digest import digests_of
from wire.bulk.property_block import marker_of
from wire.bulk.publishes import cut_contents
from wire.bulk.reader import Publishes
from wire.codec.packets import MQTT_5, Publish
from wire.reasons import NO_MATCHING_SUBSCRIBERS, QUOTA_EXCEEDED, SUCCESS


class Realtime(enum.Enum):
    """Which of a connection's messages of QoS 0 are real-time ones: none, the messages that say so, or all."""

    NONE = "none"
    MARKED = "marked"
    ALL = "all"


class Intake:
    """Takes the messages that one client publishes over one connection, or that a route's broker sends.

    Args:
        services: the parts of the gateway that it uses.
        answers: the answers to the messages.
        rules: what the client may publish.
        copies: the copies of the link, if another gateway sends the messages. One that came over a link before is not
            stored again.
        conditions: what messages have to pass on arrival, if anything. One that does not is accepted, and leaves a
            range.
        realtime: which messages are real-time ones.
        waiting: the connection's messages that cannot be stored yet, if its streams share them: what comes behind a
            message that waits waits too, since PUBACKs are sent in the order of their PUBLISHes [MQTT-4.6.0-2].
        begin_again: ends the connection, for the peer to send again what was forgotten because too much waited. None:
            nothing is forgotten, as acknowledgements do not come behind the messages.
        heard: where it is noted when messages come, if anywhere.

    ``taken`` is how many messages were taken.
    """

    __slots__ = (
        "_answers",
        "_awaits_commit",
        "_begin_again",
        "_conditions",
        "_copies",
        "_has_offered",
        "_heard",
        "_known",
        "_note",
        "_noted_in",
        "_own_trail",
        "_pace",
        "_publisher",
        "_realtime",
        "_rules",
        "_seen",
        "_services",
        "_waiting",
        "taken",
    )

    def __init__(
        self,
        services: Services,
        answers: PublishAnswers,
        rules: PublishRules,
        *,
        copies: Copies | None = None,
        conditions: Conditions | None = None,
        realtime: Realtime = Realtime.NONE,
        waiting: Waiting | None = None,
        begin_again: Callable[[], None] | None = None,
        heard: Heard | None = None,
    ) -> None:
        self._services = services
        self._answers = answers
        self._rules = rules
        self._publisher = answers.publisher
        self._copies = copies
        self._conditions = conditions
        self._realtime = realtime
        self._waiting = waiting or Waiting()
        self._begin_again = begin_again
        self._heard = heard
        self._has_offered = False  # a message of QoS 0
        self._pace = Pace(services.shared.paces, self._publisher.holding.owner)
        self._seen = services.log.seen
        self._own_trail = marker_of(services.log.hop)
        self._note: SeenNote | None = None  # of the messages in this batch
        self._noted_in = 0
        self._known = KnownMessages(services, self._publisher.client_id, copies)
        self._awaits_commit = False  # of a message with the same identity as the first that waits
        self.taken = 0

    def handle_publish(self, packet: Publish) -> None:
        self._services.counters.note_received(packet.qos, len(packet.payload))
        self._pace.note(1)
        came_ms = int(time.time() * 1000)
        message = message_from(packet, self._publisher.client_id, self._services.config.name, came_ms)
        message.owner = self._publisher.holding.owner
        if self._realtime is not Realtime.NONE:
            message.is_realtime = message.take_realtime() or self._realtime is Realtime.ALL
        # The rules do not count for what went out here and comes back: a new identity would take its hops.
        has_returned = self._publisher.is_broker and message.has_passed(self._services.log.hop)
        reason_code = SUCCESS if has_returned else self._rules.check(packet, message, came_ms)
        if reason_code == SUCCESS and self._heard is not None:
            self._heard.at_ms = came_ms
        if reason_code == SUCCESS and message.origin:  # the first message to each topic takes this path
            self._services.shared.devices.note_identity(self._publisher.client_id, message.origin, message.epoch)
        if reason_code != SUCCESS:
            self._rules.refuse(packet, message, reason_code)
        elif has_returned or message.has_passed(self._services.log.hop):
            self._services.counters.messages_returned += 1
            self._answers.accept_unstored(packet)
        elif self._conditions is not None and not self._conditions.passes(message):
            self._services.log.drop(drops.FILTERED, drops.GATEWAY, message)
            self._answers.accept_unstored(packet)
        elif packet.packet_identifier is None:
            if self._copies is not None and message.origin and self._known.is_repeated_qos_0(message):
                return
            self._has_offered = True
            self.taken += 1
            work = self._services.publishing.publish(message, self._copies)
            if work and work[0] is message:
                self._answers.add(_answer_nothing, *work)
            else:
                for one in work:
                    self._services.log.defer(one)
        elif self._waiting.holds_up or not self._take(packet, message):
            self._add_waiting(packet, message, came_ms)

    def take_newest(self, packet: Publish) -> None:
        """Takes and retains a message of which only the newest of each topic name counts, such as a receipt.

        It gets no number of this gateway, whose readers would miss that, and goes to subscribers at QoS 0. It is
        acknowledged once it is retained.
        """
        self._services.counters.note_received(packet.qos, len(packet.payload))
        self._pace.note(1)
        came_ms = int(time.time() * 1000)
        message = message_from(packet, self._publisher.client_id, self._services.config.name, came_ms)
        message.renew(self._services.config.name, came_ms)
        message.owner, message.qos, message.retain = self._publisher.holding.owner, 0, True
        unnumbered = Publish(message.topic, message.payload, 0, True, properties=message.properties)
        reason_code = self._rules.check(unnumbered, message, came_ms)
        if reason_code == SUCCESS:
            self.taken += 1
            self._answers.accept_unstored(packet, *self._services.publishing.publish(message, self._copies))
        else:
            self._rules.refuse(packet, message, reason_code)

    def refuse_unplaced(self, packet: Publish, reason_code: int, problem: str) -> None:
        """Refuses a message that is in no stream that the client may use here; ``problem`` says why."""
        self._services.counters.note_received(packet.qos, len(packet.payload))
        self._pace.note(1)
        self._rules.refuse_unplaced(packet, reason_code, problem)

    def note_packet(self) -> None:
        """Counts a packet other than a PUBLISH or an acknowledgement."""
        self._pace.note(1)

    @property
    def has_waiting(self) -> bool:
        """Whether messages wait."""
        return bool(self._waiting.messages)

    @property
    def may_read_on(self) -> bool:
        """Whether ``wait_for_room`` returns at once."""
        return self._waiting.room.is_set and not self._has_offered and not self._pace.is_too_fast

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
            await self._services.offers.wait_for(self._publisher.holding.owner)

    async def wait_for_subscribers(self) -> None:
        """Waits while many of the owner's QoS 0 messages are in memory and not handed to their subscribers."""
        if self._has_offered:
            await self._services.offers.wait_for_many(self._publisher.holding.owner)

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
                if message.retain and message.payload and not packet.dup:  # the neighbour has it still
                    self._copies.take(message.topic)
                work: list[Work] = [retained.KeepCopy(message)] if message.retain and not message.payload else []
                self._accept_repeated(packet.qos, [packet_identifier], *work)
                return True
        is_broker = self._publisher.is_broker
        verdict = self._services.limits.verdict(message.topic, message.owner, message.publisher, is_broker=is_broker)
        if is_broker:
            verdict = Verdict.WAIT if verdict is Verdict.REFUSE else verdict
        elif message.retain and not self._services.limits.may_keep(message):
            verdict = Verdict.REFUSE
        if verdict is Verdict.WAIT:
            return False
        if verdict is Verdict.REFUSE:
            self._rules.refuse(packet, message, QUOTA_EXCEEDED)
            return True
        if standing is Standing.CONFLICT:
            self._known.tell_of_conflict(message)
        self._store(message, packet.qos, [packet_identifier], masks, self._rules.learn(message))
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
        if masks and code == SUCCESS and not self._comes_anew(part):
            work += self._note_seen(masks)
        elif masks:
            work.remove(part)
        copies = self._copies if isinstance(part, Message) and part.retain else None
        if copies is not None:
            (topic,) = part.topics
            self._answers.add(lambda: copies.note_kept(topic))
        self._answers.accept_new(part, qos, identifiers, work, code, remark)

    def _note_seen(self, masks: Masks) -> list[SeenNote]:
        """Notes identities with the messages that came together; returns the work to add for it: one for all of them.

        A work for each message would take a tenth of the time that storing the message takes.
        """
        if self._note is not None and self._noted_in == self._answers.gathering:
            self._seen.note_too(self._note, masks)
            return []
        self._note, self._noted_in = self._seen.note(masks), self._answers.gathering
        return [self._note]

    def _accept_repeated(self, qos: int, identifiers: list[int], *work: Work) -> None:
        """Accepts messages that came over a link before and are durable, and does not store them again.

        ``work`` clears a retained message, if one of them does: an older one may have come again before it.
        """
        self._services.counters.messages_duplicate += len(identifiers)
        self._answers.accept(qos, identifiers, *work)

    def _is_wanted(self, topic: str) -> bool:
        """Decides between SUCCESS and "no matching subscribers"; only a server may send the latter [section 3.4.2.1]. A
        neighbour that sends what a summary asks for is not told: it would keep the message for a consumer.

        The takers are found now, so that they count for this client's slice and not for the commit.
        """
        if self._services.log.audience.takers(topic) or self._publisher.is_broker:
            return True
        is_in_summary = self._copies is not None and self._services.network.has_in_summary(topic)
        return is_in_summary or self._answers.protocol.protocol_level != MQTT_5

    def _comes_anew(self, part: Message | PublishBatch) -> bool:
        """Whether the neighbour sends a message once more to a client that wants it from now on: it is retained there,
        and no other consumer wants it now. A client that subscribed right now would get it twice if it was stored.

        A route that states what it leaves out has to see the message.
        """
        if not (isinstance(part, Message) and part.retain and part.payload) or self._copies is None:
            return False
        log = self._services.log
        if self._services.network.has_in_summary(part.topic) or any(one.is_on for one in log.routes.left_out):
            return False
        return all(part.publisher in one.not_from for one in log.audience.takers(part.topic))

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
        return self._begin_again is not None and (self._publisher.is_broker or self._answers.protocol.has_unanswered())

    def _retry(self) -> None:
        """Takes the messages that have waited, in order, as far as there is room now."""
        waiting = self._waiting
        while waiting.messages and self._answers.protocol.connected:
            intake, packet, message, came_ms = waiting.messages[0]
            if not intake.take_or_refuse(packet, message, came_ms):
                break
            waiting.remove_first()
        if not self._answers.protocol.connected:
            waiting.messages.clear()  # none of them is acknowledged
        elif waiting.has_forgotten and not waiting.messages and self._begin_again is not None:
            self._answers.add(self._begin_again)
        self._answers.end()
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
        reason_code = self._rules.check(packet, message, came_ms)
        if reason_code == SUCCESS:
            return self._take(packet, message)
        self._rules.refuse(packet, message, reason_code)
        return True

    def may_take(self, topics: Collection[str]) -> bool:
        """Whether messages of these topics may be stored now without a look at each of them."""
        if self._waiting.holds_up or not self._services.log.audience.learn(topics):
            return False
        if self._conditions is not None and any(map(self._conditions.concern, topics)):
            return False
        if len(topics) > 1 and len(set(map(self._is_wanted, topics))) > 1:  # they get different answers
            return False
        limits, publisher = self._services.limits, self._publisher
        owner, client_id, is_broker = publisher.holding.owner, publisher.client_id, publisher.is_broker
        return all(limits.verdict(one, owner, client_id, is_broker=is_broker) is Verdict.TAKE for one in topics)

    def take_publishes(self, publishes: Publishes) -> None:
        """Takes many messages of the fast path."""
        identifiers = publishes.identifiers
        self._services.counters.note_received(publishes.qos, publishes.payload_size, len(identifiers))
        self._pace.note(len(identifiers))
        batch = PublishBatch(
            publishes.packets,
            publishes.topics,
            len(identifiers),
            self._answers.protocol.protocol_level,
            self._publisher.client_id,
            int(time.time() * 1000),
            self._services.config.name,
            publishes.content_size,
        )
        if self._heard is not None:
            self._heard.at_ms = batch.received_ms
        batch.bring_identities, batch.owner = bool(publishes.identities), self._publisher.holding.owner
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
            self._accept_repeated(publishes.qos, publishes.identifiers)
        else:
            self._take_each(batch, publishes)

    def _take_each(self, batch: PublishBatch, publishes: Publishes) -> None:
        """Looks at each message of a batch."""
        for message, identifier in zip(batch.messages(), publishes.identifiers, strict=True):
            message.owner = batch.owner
            packet = Publish(message.topic, message.payload, message.qos, packet_identifier=identifier)
            if message.has_passed(self._services.log.hop):
                self._services.counters.messages_returned += 1
                self._answers.accept_unstored(packet)
            elif self._waiting.holds_up or not self._take(packet, message):
                self._add_waiting(packet, message, batch.received_ms)


def _answer_nothing() -> None:
    """A message of QoS 0 is stored: it has no acknowledgement."""
