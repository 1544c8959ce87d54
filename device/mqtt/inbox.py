"""Messages to the device. Each QoS 2 message is taken once and answered once.

Before PUBREC is sent, the device stores the message as a setting, together with the number that its answer will have,
and remembers its packet identifier. Then it acts on the message. The answer is a durable message, and proves that the
device has acted: when the device starts and finds the setting, it looks whether the answer is stored, and acts on the
message only if it is not.

    publish → setting, remember → PUBREC → act, answer → setting removed … PUBREL → release → PUBCOMP

So each message has one answer, whenever the power fails. If it fails during the action, the action is done again.
"""

import json
import struct

from device.mqtt.subscription import Subscription
from flash_store.errors import MessageTooLarge, StoreCorrupt, StoreFull
from flash_store.incoming import Incoming
from wire.codec import MQTT_5
from wire.connection.client import ClientConnection
from wire.errors import WireError
from wire.packet_types import PUBREL
from wire.properties import CORRELATION_DATA, RESPONSE_TOPIC
from wire.reasons import QUOTA_EXCEEDED
from wire.topics import check_topic_name, matches

KEY = "message"  # of the setting
OPEN = 0xFFFF_FFFF  # in place of the answer's number: no message has it, and so none is taken for the answer
HEAD = "<IHHHH"  # the answer's number, packet identifier, bytes of topic, answer's topic and correlation data
KEPT_BYTES_MAX = 1024  # leaves room for the other settings
TOO_LARGE = b'{"error": "the answer does not fit into a message"}'
ERROR_CHARACTERS_MAX = 200
ROOM_MS = 1_000  # a full store is tried again after this time
WAITING_MAX = 20  # packets that may wait before QoS 0 messages are dropped; the Receive Maximum limits QoS 1 and 2


class Message:
    """A message to the device, with the topic and the correlation data of its answer."""

    def __init__(self, topic: str, payload: bytes, answer_topic: str, correlation: bytes, identifier: int) -> None:
        self.topic = topic
        self.payload = payload
        self.answer_topic = answer_topic
        self.correlation = correlation
        self.identifier = identifier  # packet identifier; 0 if the QoS is not 2, or the session is lost


class Inbox:
    """Takes messages one after the other. `incoming` has the messages of QoS 2 that wait for their PUBREL. All come by
    `subscription`.

    Args:
        config: `device.config.Config`, whose `commands` is the topic filter to subscribe to.
        log: the device's `flash_store.log.Log`.
        act: called with topic, payload, now_ms, and whether the message is one of QoS 2. Returns the answer, a dict
            that JSON can hold, or for such a message None: the answer is not known yet, and it is called again, perhaps
            only after a restart. If it raises, the answer is an error with the exception's text.
        say: called with each line of text for the console and the log.
        probe: `device.mqtt.session_probe.SessionProbe` of a device that speaks MQTT 5, else None.
    """

    def __init__(self, config, log, act, say, probe=None) -> None:
        self.probe = probe
        self.subscription = Subscription(config.commands, log, say)
        self._answer_topic = config.topic + "/answer"
        self._log = log
        self.incoming = Incoming(log.settings)
        self._act = act
        self._say = say
        self._connection: ClientConnection | None = None
        self._gone: list = []  # packet identifiers of a lost session, which flash still remembers
        self._waiting: list = []  # packets that came: PUBLISH and PUBREL, in order
        self._room_ms: int | None = None
        self._kept: Message | None = None  # the QoS 2 message in the setting
        self._answer_id = 0  # number of the answer to `_kept`; 0 once that is stored, OPEN as long as it is not known
        self._answer: bytes | None = None  # answer to the message in hand, when it was acted on but not yet stored
        self._recall()

    def attach(self, connection, session_present: bool, is_marking: bool) -> None:
        """Takes over a connection that the broker has accepted.

        Args:
            is_marking: whether to subscribe to the marks of `probe` as well.
        """
        self._connection = connection
        if session_present:
            self.resume(connection)
        else:
            self._gone = list(self.incoming.identifiers)
        marks = self.probe.take_filters() if self.probe is not None and is_marking else []
        self.subscription.begin(session_present, marks)

    def resume(self, connection) -> None:
        """Tells the connection which QoS 2 identifiers flash remembers, so that a repeated PUBLISH is recognized."""
        connection.resume([one for one in self.incoming.identifiers if one not in self._gone])

    def detach(self) -> None:
        """The connection is lost: the broker sends unacknowledged messages again over the next one."""
        self._connection = None
        if self.probe is not None:
            self.probe.detach()
        self._waiting = []
        if self._kept is None:
            self._answer = None

    def handle_packet(self, packet) -> None:
        """Queues a PUBLISH or PUBREL for `advance`."""
        if packet.packet_identifier is None and len(self._waiting) >= WAITING_MAX:
            self._say(f"a message of QoS 0 from {packet.topic} is dropped: {len(self._waiting)} others wait")
        else:
            self._waiting.append(packet)

    def handle_answer(self, answer) -> None:
        """Takes a SUBACK or UNSUBACK, except an answer to `probe`."""
        self.subscription.handle_answer(answer)

    @property
    def is_answered(self) -> bool:
        """Whether no message waits for its answer."""
        return self._kept is None and self._answer is None

    @property
    def is_settled(self) -> bool:
        """Whether no message waits for its answer, except one whose answer is not known yet."""
        return self._answer_id == OPEN or self.is_answered

    def next_timer_ms(self) -> int | None:
        """When `advance` wants to be called at the latest."""
        return self._room_ms

    def advance(self, now_ms: int) -> None:
        """Acts on the waiting messages, as far as the store has room for them."""
        if self._room_ms is not None and now_ms < self._room_ms:
            return
        self._room_ms = None
        try:
            self._forget_session()
            self.subscription.advance(self._connection)
            while self._kept is not None or self._waiting:
                if self._kept is not None:
                    if not self._finish(self._kept, now_ms):
                        break
                else:
                    self._take_or_leave(self._waiting[0], now_ms)
                    self._waiting.pop(0)
        except StoreFull:
            self._room_ms = now_ms + ROOM_MS

    def _forget_session(self) -> None:
        while self._gone:
            if self._kept is not None and self._gone[0] == self._kept.identifier:
                self._orphan(self._kept)
            self.incoming.remove(self._gone[0])
            self._gone.pop(0)

    def _orphan(self, kept: Message) -> None:
        """Keeps the message without its packet identifier: in the new session that may belong to another message."""
        if self._answer_id:
            orphan = Message(kept.topic, kept.payload, kept.answer_topic, kept.correlation, 0)
            self._keep(orphan, self._answer_id if self._answer_id == OPEN else 0)
            self._kept = orphan
        else:
            self._log.settings.remove(KEY)
            self._kept = None

    def _take_or_leave(self, packet, now_ms: int) -> None:
        try:
            self._take(packet, now_ms)
        except MessageTooLarge as error:  # it stays unacknowledged, so the broker sends it again later
            self._say(f"a message from {packet.topic} is left with the broker: {error}")

    def _take(self, packet, now_ms: int) -> None:
        """Raises StoreFull; the packet then stays in the queue."""
        assert self._connection is not None
        identifier = packet.packet_identifier
        if packet.TYPE == PUBREL:
            self.incoming.remove(identifier)
            self._connection.pubcomp(identifier)
            return
        message = self._read(packet)
        if packet.retain:
            self._say(f"a retained message from {message.topic} is passed over: it may have been acted on before")
        elif not matches(self.subscription.own_filter, packet.topic):
            self._say(f"a message from {message.topic} is passed over: commands is {self.subscription.topic_filter}")
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
        """Acknowledges a message that needs no (further) action."""
        assert self._connection is not None
        if packet.qos == 1:
            self._connection.puback(packet.packet_identifier)
        elif packet.qos == 2:
            self._remember_only(packet.packet_identifier)
            self._connection.pubrec(packet.packet_identifier)

    def _remember_only(self, identifier: int) -> None:
        """Remembers the identifier of a message that is not acted on.

        An old setting with the same identifier is removed first: the next start would take it for this message.
        """
        self._log.settings.remove(KEY)
        self.incoming.add(identifier)

    def _take_once(self, message: Message) -> None:
        assert self._connection is not None
        try:
            self._keep(message)
            self.incoming.add(message.identifier)
        except MessageTooLarge as error:
            self._say(f"a message from {message.topic} is refused: {error}")
            if self._connection.protocol_level == MQTT_5:
                self._connection.pubrec(message.identifier, QUOTA_EXCEEDED, str(error))
                return
            self._remember_only(message.identifier)  # MQTT 3.1.1 has no refusal: take the message and ignore it
        else:
            self._kept = message
        self._connection.pubrec(message.identifier)

    def _finish(self, message: Message, now_ms: int) -> bool:
        """Returns False if the answer is not known yet."""
        if self._answer_id:
            if not self._act_and_answer(message, now_ms):
                return False
            self._answer_id = 0
        self._log.settings.remove(KEY)
        self._kept = None
        return True

    def _act_and_answer(self, message: Message, now_ms: int) -> bool:
        """Returns False if the answer is not known yet.

        Raises StoreFull; then the answer waits in RAM for room, and the action is not repeated.
        """
        if self._answer is None:
            if self._answer_id != OPEN:
                self._number_answer(message)
            self._answer = self._make_answer(message, now_ms)
            if self._answer is None:
                if self._answer_id != OPEN:
                    self._keep(message, OPEN)
                return False
        self._number_answer(message)
        try:
            self._log.append(message.answer_topic, self._answer, 1)
        except MessageTooLarge:
            self._log.append(self._answer_topic, TOO_LARGE, 1)
        self._answer = None
        return True

    def _make_answer(self, message: Message, now_ms: int) -> bytes | None:
        try:
            answer = self._act(message.topic, message.payload, now_ms, message is self._kept)
            if answer is None:
                return None
            if message.correlation:
                answer["correlation"] = _text(message.correlation)
            return json.dumps(answer).encode()
        except Exception as error:  # a program's mistake, too, must not stop the device
            self._say(f"a message from {message.topic} failed: {error!r}")
            return json.dumps({"error": repr(error)[:ERROR_CHARACTERS_MAX]}).encode()

    def _number_answer(self, message: Message) -> None:
        """Rewrites the setting if the log has moved on, so that it names the number that the answer will have."""
        if message is self._kept and self._answer_id != self._log.last_id + 1:
            self._keep(message)

    def _keep(self, message: Message, answer_id: int = 0) -> None:
        parts = [message.topic.encode(), message.answer_topic.encode(), message.correlation]
        size = sum([len(part) for part in parts]) + len(message.payload)
        if size > KEPT_BYTES_MAX:
            raise MessageTooLarge(f"{size} bytes with its topics, {KEPT_BYTES_MAX} fit")
        self._answer_id = answer_id or self._log.last_id + 1
        head = struct.pack(HEAD, self._answer_id, message.identifier, *[len(part) for part in parts])
        self._log.settings.set(KEY, head + b"".join(parts) + message.payload)

    def _recall(self) -> None:
        """Reads from flash the message that the device had not finished when the power failed."""
        try:
            value = self._log.settings.get(KEY)
        except StoreCorrupt as error:
            self._say(f"a message that was to be acted on is lost: {error}")
            return
        if value is None:
            return
        answer_id, identifier, *sizes = struct.unpack_from(HEAD, value)
        if identifier and identifier not in self.incoming:
            return  # no PUBREC was sent: the broker sends the message again, and the setting is overwritten
        parts = []
        at = struct.calcsize(HEAD)
        for size in sizes:
            parts.append(value[at : at + size])
            at += size
        self._kept = Message(str(parts[0], "utf-8"), value[at:], str(parts[1], "utf-8"), parts[2], identifier)
        self._answer_id = 0 if self._is_answered(answer_id, self._kept.answer_topic) else answer_id

    def _is_answered(self, answer_id: int, answer_topic: str) -> bool:
        """Returns whether the message with the answer's number is the answer.

        The action itself may have published a message that took this number; its topic then is another one.
        """
        if answer_id > self._log.last_id:
            return False
        if self._log.holds(answer_id):
            found = next(self._log.messages(answer_id - 1), None)
            if found is None or found[0] != answer_id:
                return True  # the record is corrupt; a gap reports it
            return found[3] in (answer_topic, self._answer_topic)
        gaps = self._log.gaps()
        return not any(first <= answer_id <= last and reason == "torn" for first, last, _, reason in gaps)


def _text(correlation: bytes) -> str:
    """Returns the correlation data as text if it is UTF-8, otherwise in hexadecimal."""
    try:
        return str(correlation, "utf-8")
    except UnicodeError:
        return "".join([f"{byte:02x}" for byte in correlation])
