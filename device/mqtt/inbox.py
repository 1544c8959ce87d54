"""Messages to the device: each of QoS 2 is taken once and answered once.

Before PUBREC the message itself is a setting of the store, with the number that its answer will have, and its packet
identifier is remembered. Then it is acted on. Its answer, a durable message, is what says that this was done: a start
that finds the setting looks whether that answer is stored, and acts on the message only where it is not.

    publish → setting, remember → PUBREC → act, answer → setting removed … PUBREL → release → PUBCOMP

So there is one answer, whatever dies when. Where the power goes while it is acted on, that begins anew.

The topic filter of the subscription is a setting too: a broker that still has that of an older configuration is told to
forget it, and what comes by it all the same is passed over.
"""

import json
import struct

from flash_store.errors import MessageTooLarge, StoreCorrupt, StoreFull
from wire.client import ClientConnection
from wire.codec.packet import MQTT_5
from wire.codec.subscribe import NO_LOCAL, RETAIN_NEVER
from wire.errors import WireError
from wire.packet_types import PUBREL, UNSUBACK
from wire.properties import CORRELATION_DATA, RESPONSE_TOPIC
from wire.reasons import QUOTA_EXCEEDED, UNSPECIFIED_ERROR
from wire.topics import check_topic_name, matches, parse_shared

KEY = "message"  # of the setting
FILTER_KEY = "commands"
HEAD = "<IHHHH"  # the answer's number, packet identifier, bytes of topic, answer's topic and correlation data
KEPT_BYTES_MAX = 1024  # so that the other settings have room beside
TOO_LARGE = b'{"error": "the answer does not fit into a message"}'
ERROR_CHARACTERS_MAX = 200
ROOM_MS = 1_000  # until the next look whether the store has room again
WAITING_MAX = 20  # as many as may come unacknowledged: messages of QoS 0, which nothing else limits, beside them


class Message:
    """What came, and what its answer needs."""

    def __init__(self, topic: str, payload: bytes, answer_topic: str, correlation: bytes, identifier: int) -> None:
        self.topic = topic
        self.payload = payload
        self.answer_topic = answer_topic
        self.correlation = correlation
        self.identifier = identifier  # 0 where it is not of QoS 2, or its session is gone


class Inbox:
    """Takes messages one after the other.

    Args:
        config: `device.config.Config`, whose `commands` is the topic filter to subscribe to.
        log: the device's `flash_store.log.Log`.
        act: called with topic, payload and now_ms; returns the answer, keys and values that JSON can hold. What it
            raises is answered as an error.
        say: called with each line for people.
    """

    def __init__(self, config, log, act, say) -> None:
        self._filter = config.commands
        self._own_filter = parse_shared(self._filter)[1]
        self._answer_topic = config.topic + "/answer"
        self._log = log
        self._act = act
        self._say = say
        self._connection: ClientConnection | None = None
        self._marks: list = []
        self._wants_subscription = False
        self._may_hold_other = False  # whether the broker may have the subscription of an older configuration
        self._gone: list = []  # packet identifiers of a lost session
        self._waiting: list = []  # packets that came: PUBLISH and PUBREL, in order
        self._room_ms: int | None = None
        self._kept: Message | None = None  # in the setting
        self._answer_id = 0  # that of the answer to `_kept`; 0 once it is answered
        self._answer: bytes | None = None  # to the message that is being taken, where it has been acted on
        self._recall()

    def attach(self, connection, session_present: bool, marks: list) -> None:
        """A connection that the broker has accepted; `marks` are subscribed to as well, see `device.session_mark`."""
        self._connection = connection
        self._marks = marks
        if session_present:
            self.resume(connection)
        else:
            self._gone = self._log.remembered()
        self._wants_subscription = True
        self._may_hold_other = session_present

    def resume(self, connection) -> None:
        """What comes again is known, and nothing is released that flash has not released."""
        remembered = self._log.remembered()
        connection.resume([identifier for identifier in remembered if identifier not in self._gone])

    def detach(self) -> None:
        """The connection is lost: what was not acknowledged comes again."""
        self._connection = None
        self._waiting = []
        if self._kept is None:
            self._answer = None

    def handle_packet(self, packet) -> None:
        """A PUBLISH, or the PUBREL of one."""
        if packet.packet_identifier is None and len(self._waiting) >= WAITING_MAX:
            self._say(f"a message of QoS 0 from {packet.topic} is dropped: {len(self._waiting)} others wait")
        else:
            self._waiting.append(packet)

    def handle_answer(self, answer) -> None:
        """A SUBACK or UNSUBACK."""
        if answer.TYPE == UNSUBACK:
            self._may_hold_other = False
            self._wants_subscription = True
        elif answer.reason_codes[0] >= UNSPECIFIED_ERROR:
            self._say(f"no messages from {self._filter}: the broker refuses the subscription")

    @property
    def is_settled(self) -> bool:
        """Whether no message waits for its answer."""
        return self._kept is None and self._answer is None

    def next_timer_ms(self) -> int | None:
        """When `advance` wants to be called at the latest."""
        return self._room_ms

    def advance(self, now_ms: int) -> None:
        """Acts on what has come, as far as the store has room for it."""
        if self._room_ms is not None and now_ms < self._room_ms:
            return
        self._room_ms = None
        try:
            self._forget_session()
            self._subscribe()
            while self._kept is not None or self._waiting:
                if self._kept is not None:
                    self._finish(self._kept, now_ms)
                else:
                    self._take_or_leave(self._waiting[0], now_ms)
                    self._waiting.pop(0)
        except StoreFull:
            self._room_ms = now_ms + ROOM_MS

    def _forget_session(self) -> None:
        while self._gone:
            if self._kept is not None and self._gone[0] == self._kept.identifier:
                self._orphan(self._kept)
            self._log.release(self._gone[0])
            self._gone.pop(0)

    def _orphan(self, kept: Message) -> None:
        """It is to be finished without its identifier, which may come with another message now."""
        if self._answer_id:
            orphan = Message(kept.topic, kept.payload, kept.answer_topic, kept.correlation, 0)
            self._keep(orphan)
            self._kept = orphan
        else:
            self._log.settings.remove(KEY)
            self._kept = None

    def _subscribe(self) -> None:
        """By a filter that is noted before, once the broker has forgotten the other one."""
        connection = self._connection
        if connection is None or not self._wants_subscription:
            return
        noted = self._noted_filter()
        if self._may_hold_other and noted is not None and noted != self._filter.encode():
            connection.unsubscribe([str(noted, "utf-8")])
            self._wants_subscription = False
            return
        if noted != self._filter.encode():
            self._log.settings.set(FILTER_KEY, self._filter.encode())
        self._wants_subscription = False
        options = 2
        if connection.protocol_level == MQTT_5:
            options |= RETAIN_NEVER | (NO_LOCAL if self._own_filter == self._filter else 0)  # [MQTT-3.8.3-4]
        try:
            connection.subscribe([(self._filter, options)] + self._marks)
        except WireError as error:
            self._say(f"no messages from {self._filter}: {error}")

    def _noted_filter(self) -> bytes | None:
        try:
            return self._log.settings.get(FILTER_KEY)
        except StoreCorrupt:
            return None  # what comes by it is passed over

    def _take_or_leave(self, packet, now_ms: int) -> None:
        try:
            self._take(packet, now_ms)
        except MessageTooLarge as error:  # unacknowledged it comes again, when fewer may be on the way
            self._say(f"a message from {packet.topic} is left with the broker: {error}")

    def _take(self, packet, now_ms: int) -> None:
        """Raises StoreFull: then it goes on waiting."""
        assert self._connection is not None
        identifier = packet.packet_identifier
        if packet.TYPE == PUBREL:
            self._log.release(identifier)
            self._connection.pubcomp(identifier)
            return
        message = self._read(packet)
        if packet.retain:
            self._say(f"a retained message from {message.topic} is passed over: it may have been acted on before")
        elif not matches(self._own_filter, packet.topic):
            self._say(f"a message from {message.topic} is passed over: commands is {self._filter}")
        elif packet.qos == 2:
            self._take_once(message)
            return
        else:
            self._act_and_answer(message, now_ms)
        self._pass_over(packet)

    def _read(self, packet) -> Message:
        answer_topic = packet.properties.get(RESPONSE_TOPIC, self._answer_topic)
        try:
            check_topic_name(answer_topic)
        except WireError:
            answer_topic = self._answer_topic
        correlation = packet.properties.get(CORRELATION_DATA, b"")
        identifier = packet.packet_identifier if packet.qos == 2 else 0
        return Message(packet.topic, bytes(packet.payload), answer_topic, correlation, identifier)

    def _pass_over(self, packet) -> None:
        """Acknowledges what needs nothing more."""
        assert self._connection is not None
        if packet.qos == 1:
            self._connection.puback(packet.packet_identifier)
        elif packet.qos == 2:
            self._remember_only(packet.packet_identifier)
            self._connection.pubrec(packet.packet_identifier)

    def _remember_only(self, identifier: int) -> None:
        """A start that finds a setting with this identifier would take that for what is to be finished."""
        self._log.settings.remove(KEY)
        self._log.remember(identifier)

    def _take_once(self, message: Message) -> None:
        assert self._connection is not None
        try:
            self._keep(message)
            self._log.remember(message.identifier)
        except MessageTooLarge as error:
            self._say(f"a message from {message.topic} is refused: {error}")
            if self._connection.protocol_level == MQTT_5:
                self._connection.pubrec(message.identifier, QUOTA_EXCEEDED, str(error))
                return
            self._remember_only(message.identifier)  # over MQTT 3.1.1 it can only be taken, and passed over
        else:
            self._kept = message
        self._connection.pubrec(message.identifier)

    def _finish(self, message: Message, now_ms: int) -> None:
        if self._answer_id:
            self._act_and_answer(message, now_ms)
            self._answer_id = 0
        self._log.settings.remove(KEY)
        self._kept = None

    def _act_and_answer(self, message: Message, now_ms: int) -> None:
        """Raises StoreFull: then the answer waits for room, and what was done is not done again."""
        if self._answer is None:
            self._number_answer(message)
            self._answer = self._make_answer(message, now_ms)
        self._number_answer(message)
        try:
            self._log.append(message.answer_topic, self._answer, 1)
        except MessageTooLarge:
            self._log.append(self._answer_topic, TOO_LARGE, 1)
        self._answer = None

    def _make_answer(self, message: Message, now_ms: int) -> bytes:
        try:
            answer = self._act(message.topic, message.payload, now_ms)
            if message.correlation:
                answer["correlation"] = _text(message.correlation)
            return json.dumps(answer).encode()
        except Exception as error:  # a program's mistake, too, must not stop the device
            self._say(f"a message from {message.topic} failed: {error!r}")
            return json.dumps({"error": repr(error)[:ERROR_CHARACTERS_MAX]}).encode()

    def _number_answer(self, message: Message) -> None:
        """The setting has to have the number that the answer will have."""
        if message is self._kept and self._answer_id != self._log.last_id + 1:
            self._keep(message)

    def _keep(self, message: Message) -> None:
        parts = [message.topic.encode(), message.answer_topic.encode(), message.correlation]
        size = sum([len(part) for part in parts]) + len(message.payload)
        if size > KEPT_BYTES_MAX:
            raise MessageTooLarge(f"{size} bytes with its topics, {KEPT_BYTES_MAX} fit")
        self._answer_id = self._log.last_id + 1
        head = struct.pack(HEAD, self._answer_id, message.identifier, *[len(part) for part in parts])
        self._log.settings.set(KEY, head + b"".join(parts) + message.payload)

    def _recall(self) -> None:
        """Of a message that came before a power cut what is left to do."""
        try:
            value = self._log.settings.get(KEY)
        except StoreCorrupt as error:
            self._say(f"a message that was to be acted on is lost: {error}")
            return
        if value is None:
            return
        answer_id, identifier, *sizes = struct.unpack_from(HEAD, value)
        if identifier and not self._log.remembers(identifier):
            return  # no PUBREC went out: it comes again, and the setting is overwritten
        parts = []
        at = struct.calcsize(HEAD)
        for size in sizes:
            parts.append(value[at : at + size])
            at += size
        self._kept = Message(str(parts[0], "utf-8"), value[at:], str(parts[1], "utf-8"), parts[2], identifier)
        self._answer_id = 0 if self._is_answered(answer_id, self._kept.answer_topic) else answer_id

    def _is_answered(self, answer_id: int, answer_topic: str) -> bool:
        """What has the answer's number may be what the action itself has published, if that is still here."""
        if answer_id > self._log.last_id:
            return False
        if self._log.holds(answer_id):
            found = next(self._log.messages(answer_id - 1), None)
            if found is None or found[0] != answer_id:
                return True  # it is told as unreadable
            return found[3] in (answer_topic, self._answer_topic)
        gaps = self._log.gaps()
        return not any(first <= answer_id <= last and reason == "torn" for first, last, _, reason in gaps)


def _text(correlation: bytes) -> str:
    """As it is where it is text, else in hexadecimal."""
    try:
        return str(correlation, "utf-8")
    except UnicodeError:
        return "".join([f"{byte:02x}" for byte in correlation])
