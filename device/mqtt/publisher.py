"""Sends the messages of the flash log to the broker: the window of messages in flight, and the answer to each.

The states of a message, and of the broker's session, are in `device.mqtt.states`.
"""

from device.clock import earliest
from device.mqtt.custody import Custody
from device.mqtt.settings import PROVEN, read_setting
from device.mqtt.states import IN_DOUBT, NEW, OTHER, RESUMED
from flash_store.log import packet_identifier
from wire.connection.client import ClientConnection
from wire.errors import WireError
from wire.identity import IDENTITY_PROPERTY, encode_identity
from wire.properties import CONTENT_TYPE, REASON_STRING, USER_PROPERTY
from wire.reasons import PACKET_IDENTIFIER_NOT_FOUND, UNSPECIFIED_ERROR

REQUESTS = 16  # packet identifiers that are kept free for SUBSCRIBE and UNSUBSCRIBE
SENML_JSON, SENML_CBOR = "application/senml+json", "application/senml+cbor"
ARRAY_1, ARRAY_2 = b"\x98", b"\x99"  # the first bytes of CBOR arrays with 1 and 2 bytes of length behind
BASE_NAME, BASE_TIME = b"\x21", b"\x22"  # the first key of the first record
WINDOW = 8  # most messages in flight; fewer if the broker's Receive Maximum is smaller


class Publisher:
    """Sends the log's messages, oldest first; `custody` notes what the broker acknowledges.

    A message keeps its packet identifier and its identity over connections and restarts. A message that the broker
    refuses stays in the log and keeps its place in the window until it is sent again after a pause. So a broker that
    refuses everything is not flooded, and a broker that refuses a single message gets all others; see
    `device.mqtt.refusals`.

    Args:
        log: the device's `flash_store.log.Log`.
        clock: `device.clock.Clock`.
        say: called with each line of text for the console and the log.
        resends, dropped: see `device.mqtt.custody.Custody`.
        qos0_queue: `device.mqtt.qos0_queue.Qos0Queue` of a device that publishes at QoS 0.
    """

    def __init__(self, log, client_id: str, clock, say, resends: bool = False, dropped=None, qos0_queue=None) -> None:
        self._log = log
        self._client_id = client_id
        self._clock = clock
        self._say = say
        self._qos0_queue = qos0_queue
        self.custody = Custody(log, say, resends, dropped)
        self._is_lowered = False  # whether the log already says that QoS 2 messages are sent at QoS 1
        self._connection: ClientConnection | None = None
        self._session = NEW
        self._maybe_sent = log.last_id  # messages up to this id may have been sent, in this boot or an earlier one
        self._sent = 0  # messages up to this id were sent over this connection
        self._on_the_way: dict = {}  # packet identifier: message id
        self._anew: list = []  # ids of messages that are sent again before all others
        self._refusals = None if read_setting(log, PROVEN) is None else self._make_refusals()
        self._sent_ms = 0  # when the last PUBLISH went out
        self._left = 0  # the oldest message that was unanswered when the broker ended the connection

    def attach(self, connection, session: int, is_other: bool) -> None:
        """Takes a connection that the broker has accepted, and sends everything unacknowledged over it.

        Args:
            is_other: whether it is another broker than before, which may accept what the last one refused.
            session: NEW, RESUMED, IN_DOUBT or OTHER, see `device.mqtt.states`. NEW means that the CONNACK came without
                Session Present; then no PUBLISH carries DUP [MQTT-3.3.1-1].
        """
        self.detach()
        if is_other and self._refusals is not None:
            self._refusals.forget()
        if session in (NEW, OTHER):
            self.custody.lose_session()
        self._connection = connection
        self._session = RESUMED if session == OTHER else session
        self._release_dropped()
        for message_id in self.custody.taken:
            self._release(message_id)

    @property
    def is_waiting(self) -> bool:
        """Whether an answer of the broker is outstanding, or one of its PUBRECs waits for room in flash."""
        return bool(self._on_the_way or self.custody.owed)

    @property
    def first_request(self) -> int:
        """The first packet identifier for SUBSCRIBE and UNSUBSCRIBE.

        It belongs neither to a message whose exchange with the broker may be unfinished [MQTT-2.2.1-3] nor to one that
        will be sent soon.
        """
        behind = self._log.ids(1) or [self._log.last_id + 1]
        return packet_identifier(min(behind + list(self.custody.dropped)) - REQUESTS)

    def detach(self) -> None:
        """The connection is lost."""
        self._connection = None
        self._sent = 0
        self._on_the_way = {}
        self.custody.detach()
        self._anew = []
        if self._refusals is not None:
            self._refusals.detach()

    def fill(self, now_ms: int) -> bool:
        """Sends one message if the window has a place; returns whether there may be another one to send.

        It sends one at a time, so that RAM never holds a whole window of messages.
        """
        self._release_dropped()
        if self._session == IN_DOUBT and not self._on_the_way:
            self._session = RESUMED
        refusals = self._refusals
        while self._session != IN_DOUBT and self._places() > 0:
            anew = self._next_anew(now_ms)
            message = next(self._log.messages(self._sent if anew is None else anew - 1), None)
            if anew is not None and (message is None or message[0] != anew):
                self._anew.pop(0)  # the message is no longer stored
            elif message is None:
                if refusals is None or not refusals.skipped or self._on_the_way or refusals.is_waiting:
                    return False
                self._sent, refusals.skipped = refusals.skipped - 1, 0
            elif anew is None and self._on_the_way.get(packet_identifier(message[0])) == message[0]:
                self._sent = message[0]  # it is in flight already: its PUBREL was sent
            elif anew is None and refusals is not None and refusals.sets_back(message[0]):
                self._sent = message[0]
            elif self._is_in_use(message[0]):
                return False
            else:
                self._send_next(message, anew, now_ms)
                return True
        return False

    def send_qos_0(self) -> bool:
        """Sends one QoS 0 message; returns whether there was one."""
        if self._qos0_queue is None or self._connection is None or (message := self._qos0_queue.take()) is None:
            return False
        topic, payload, retain = message
        try:
            self._connection.publish(topic, payload, qos=0, retain=retain)
        except WireError as error:
            self._qos0_queue.dropped += 1
            self._say(f"message at QoS 0 dropped: {error}")
        return True

    def handle_puback(self, puback, now_ms: int) -> None:
        """The broker has accepted the message, or refuses it."""
        message_id = self._on_the_way.pop(puback.packet_identifier, None)
        if message_id is None:
            return
        if puback.reason_code >= UNSPECIFIED_ERROR:
            self._refuse(message_id, puback, now_ms)
        else:
            self.custody.say_remark(message_id, puback)
            self._acknowledge(message_id, now_ms)

    def handle_pubrec(self, pubrec, now_ms: int) -> None:
        """The broker has accepted the QoS 2 message, or refuses it. PUBREL is sent once flash has the PUBREC."""
        message_id = self._on_the_way.get(pubrec.packet_identifier)
        if message_id is None:
            return
        if pubrec.reason_code >= UNSPECIFIED_ERROR:
            self._on_the_way.pop(pubrec.packet_identifier)
            self._refuse(message_id, pubrec, now_ms)
            return
        self.custody.say_remark(message_id, pubrec)
        self.custody.take_pubrec(message_id, now_ms)
        self.handle_timer(now_ms)

    def handle_pubcomp(self, pubcomp, now_ms: int) -> None:
        """The broker has released the message.

        If it answers that it does not know the packet identifier, it had released the message before, unless the
        session is in doubt: then the message is sent again.
        """
        message_id = self._on_the_way.pop(pubcomp.packet_identifier, None)
        if message_id is None:
            return
        is_unknown = pubcomp.reason_code == PACKET_IDENTIFIER_NOT_FOUND
        if is_unknown and self._session == IN_DOUBT and self._log.holds(message_id):
            self.custody.disown(message_id)
            self._anew.append(message_id)
        else:
            self._acknowledge(message_id, now_ms)

    def handle_retry(self, retry, now_ms: int) -> None:
        """Resends messages over MQTT 3.1.1 that have waited too long for an answer."""
        for identifier in retry.packet_identifiers:
            message_id = self._on_the_way.get(identifier)
            message = None if message_id is None else next(self._log.messages(message_id - 1), None)
            if message is not None and message[0] == message_id:
                self._send(message, True, now_ms)

    def handle_close(self, reason_code: int | None, text: str, now_ms: int) -> None:
        """The broker has ended the connection, perhaps because of a message.

        `reason_code` comes from its DISCONNECT; None without a DISCONNECT.
        """
        answered = self.custody.taken + self.custody.owed
        sent = [one for one in self._on_the_way.values() if one not in answered and self._log.holds(one)]
        if self._refusals is None and min(sent, default=0) != self._left:
            self._left = min(sent, default=0)  # `Refusals` is loaded only when it happens again over this message
        elif self._refusals is not None or sent:
            waited_ms = now_ms - self._sent_ms
            self._watch_refusals().end(sent, len(self._on_the_way) == 1, waited_ms, reason_code, text, now_ms)

    def next_timer_ms(self) -> int | None:
        """When `handle_timer` or `fill` wants to be called."""
        refused_ms = None if self._refusals is None else self._refusals.next_timer_ms(not self._on_the_way)
        return earliest([self.custody.flush_ms, self.custody.owed_ms, refused_ms])

    def handle_timer(self, now_ms: int) -> None:
        """Writes due acknowledgements and PUBRECs to flash, and queues refused messages whose pause is over."""
        for message_id in self.custody.note_due(now_ms):
            self._release(message_id)
        if self._refusals is not None:
            self._anew = self._refusals.take_due(now_ms, self._anew)

    def _places(self) -> int:
        if self._connection is None:
            return 0
        on_the_way = len(self._on_the_way)
        places = WINDOW - on_the_way if self._refusals is None else self._refusals.places(on_the_way)
        return min(self._connection.send_quota, places)

    def _next_anew(self, now_ms: int) -> int | None:
        """Returns the id of a message that is to be sent again, before messages that were never sent; or None."""
        if self._anew:
            return self._anew[0]
        if self._refusals is None or self._on_the_way:
            return None
        return self._refusals.next_alone(now_ms)

    def _send_next(self, message: tuple, anew: int | None, now_ms: int) -> None:
        message_id = message[0]
        dup = self._session != NEW and message_id <= self._maybe_sent
        if anew is None:
            self._sent = message_id
        elif self._anew:
            # In MQTT's sense its PUBACK or PUBREC acknowledged it, so this is a new PUBLISH, not a resend
            # [MQTT-4.4.0-2].
            self._anew.pop(0)
            dup = False
        self._send(message, dup, now_ms)
        self._maybe_sent = max(self._maybe_sent, message_id)

    def _send(self, message: tuple, dup: bool, now_ms: int) -> None:
        message_id, qos, retain, topic, payload = message
        assert self._connection is not None
        self._sent_ms = now_ms
        if qos == 2 and self._connection.maximum_qos_peer == 1:
            qos = 1  # [MQTT-3.2.2-11]
            if not self._is_lowered:
                self._is_lowered = True
                self._say("this broker takes QoS 1 at most: messages of QoS 2 go out at QoS 1, with their identity")
        identifier = packet_identifier(message_id)
        identity = encode_identity(self._client_id, self._log.epoch, message_id)
        properties: dict = {USER_PROPERTY: [(IDENTITY_PROPERTY, identity)]}
        kind = content_type(payload)
        if kind is not None:
            properties[CONTENT_TYPE] = kind
        try:
            self._connection.publish(
                topic, payload, qos=qos, retain=retain, dup=dup, properties=properties, packet_identifier=identifier
            )
        except (WireError, MemoryError) as error:  # for example too large for this broker, or for the heap
            if identifier not in self._on_the_way:  # otherwise this was a resend, which is tried again later
                self._watch_refusals().refuse(message_id, None, str(error), now_ms)
        else:
            self._on_the_way[identifier] = message_id
            if qos == 2:
                self.custody.begin(message_id)

    def _is_in_use(self, message_id: int) -> bool:
        """Whether the message's packet identifier is still in use, by a request or by a message 65,535 ids older."""
        assert self._connection is not None
        return self._connection.is_in_use(packet_identifier(message_id))

    def _release(self, message_id: int) -> None:
        assert self._connection is not None
        identifier = packet_identifier(message_id)
        self._on_the_way[identifier] = message_id
        self._connection.pubrel(identifier)

    def _release_dropped(self) -> None:
        """Sends PUBREL for QoS 2 messages that the store dropped while they were in flight."""
        if self._connection is not None:
            for message_id in self.custody.dropped:
                if not self._is_in_use(message_id):
                    self._release(message_id)

    def _acknowledge(self, message_id: int, now_ms: int) -> None:
        if self._refusals is not None:
            self._refusals.take(message_id)
        self.custody.acknowledge(message_id, not self._on_the_way, now_ms)

    def _refuse(self, message_id: int, answer, now_ms: int) -> None:
        self.custody.end(message_id)
        from wire.reasons import describe  # loaded only now: most brokers never refuse a message

        text = answer.properties.get(REASON_STRING)
        text = describe(answer.reason_code) + (f", {text}" if text else "")
        self._watch_refusals().refuse(message_id, answer.reason_code, text, now_ms)

    def _watch_refusals(self):
        """Returns the `Refusals`, made at the first refusal: most brokers never refuse a message."""
        if self._refusals is None:
            self._refusals = self._make_refusals()
        return self._refusals

    def _make_refusals(self):
        from device.mqtt.refusals import Refusals

        return Refusals(self._log, self._clock, self._say)


def content_type(payload: bytes) -> str | None:
    """Returns the content type of a message in flash, recognized by its first bytes.

    The configuration does not tell it, because the message may be older. None for a message that a user's own program
    has stored.
    """
    if payload[:7] == b'[{"bn":':
        return SENML_JSON
    at = 2 if payload[:1] == ARRAY_1 else 3 if payload[:1] == ARRAY_2 else 1
    if (
        b"\x80" < payload[:1] < b"\xa0"
        and b"\xa0" < payload[at : at + 1] < b"\xc0"
        and payload[at + 1 : at + 2] in (BASE_NAME, BASE_TIME)
    ):
        return SENML_CBOR
    return None
