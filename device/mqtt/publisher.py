"""From flash to the broker: the window of messages on the way, and what becomes of each."""

from device.clock import earliest
from device.noted import DISOWNED, PROVEN, SESSION_MARK, Noted, read_setting, remove_setting
from device.payload import content_type
from flash_store.errors import StoreFull
from flash_store.log import packet_identifier
from wire.client import ClientConnection
from wire.errors import WireError
from wire.identity import IDENTITY_PROPERTY, encode_identity
from wire.properties import CONTENT_TYPE, REASON_STRING, USER_PROPERTY
from wire.reasons import PACKET_IDENTIFIER_NOT_FOUND, UNSPECIFIED_ERROR

REQUESTS = 16  # packet identifiers for SUBSCRIBE and UNSUBSCRIBE, which no message has meanwhile
WINDOW = 8  # messages on the way at most, fewer where the broker wants it so
OWED_MS = 1_000  # from one look whether the store has room for the note of a PUBREC to the next
FLUSH_MS = 1_000  # an acknowledgement waits this long for others to share its record in flash


class Publisher:
    """Sends the log's messages, oldest first, and acknowledges them there once the broker has.

    A message keeps its packet identifier and its identity over connections and restarts. One that the broker refuses
    stays in the log and keeps its place in the window until it goes out anew after a pause, so that a broker that
    refuses everything is not flooded and one that refuses a single message gets all others; see `device.refusals`.

    Of QoS 2 a PUBREC is durable before its PUBREL goes out. A broker that has lost the session may have lost with it
    what it had said PUBREC to. That goes out anew, and needs a PUBREC of its own: until then it is disowned. A device
    that is told not to resend it forsakes it, which leaves a gap.

    Args:
        log: the device's `flash_store.log.Log`.
        clock: `device.clock.Clock`.
        say: called with each line for people.
        resends: what had its PUBREC goes out anew where the session is lost.
        unreleased: `device.unreleased.Unreleased` of a device whose store drops its oldest messages.
        unstored: `device.unstored.Unstored` of a device that publishes at QoS 0.
    """

    def __init__(self, log, client_id: str, clock, say, resends: bool = False, unreleased=None, unstored=None) -> None:
        self._log = log
        self._client_id = client_id
        self._clock = clock
        self._say = say
        self._unstored = unstored
        self._resends = resends
        self._unreleased = unreleased
        self._disowned = Noted(log, DISOWNED, log.pubrecs)
        self._remark = ""  # what a broker last said of a message that it took
        self._is_lowered = False  # whether it was said that QoS 2 messages go out at QoS 1
        self._connection: ClientConnection | None = None
        self._session_present = False
        self._is_in_doubt = False
        self._maybe_sent = log.last_id  # up to here messages may have been sent, in this boot or an earlier one
        self._sent = 0  # up to here they were sent over this connection
        self._on_the_way: dict = {}  # packet identifier: message id
        self._owed: list = []  # message ids whose PUBREC could not be noted yet
        self._owed_ms: int | None = None
        self._anew: list = []  # ids of messages that go out anew before others
        self._refusals = None if read_setting(log, PROVEN) is None else self._make_refusals()
        self._sent_ms = 0  # when the last PUBLISH went out
        self._left = 0  # the oldest message that was unanswered when the broker ended the connection
        self._flush_ms: int | None = None

    def attach(self, connection, session_present: bool, is_in_doubt: bool = False, is_other: bool = False) -> None:
        """A connection that the broker has accepted: everything unacknowledged goes out (again), PUBRELs first.

        Args:
            session_present: as the CONNACK says it: what may have been sent goes out with DUP [MQTT-3.3.1-1].
            is_in_doubt: the session may be another one than before. Then a PUBREL that the broker does not know leads
                to a PUBLISH, which is a second one where only the PUBCOMP was lost; all others go out behind it.
            is_other: the session is present, and not the one in which what had its PUBREC was sent.
        """
        self.detach()
        if is_other or not session_present:
            self._lose_session()
        self._connection = connection
        self._session_present = session_present
        self._is_in_doubt = is_in_doubt
        self._release_dropped()
        for message_id in self._taken():
            self._release(message_id)

    @property
    def has_promises(self) -> bool:
        """Whether the session has promised something: to release what had its PUBREC, not to repeat what had ours."""
        return bool(self._taken() or self._log.remembered())

    @property
    def is_waiting(self) -> bool:
        """Whether the broker has something to answer."""
        return bool(self._on_the_way or self._owed)

    @property
    def is_noted(self) -> bool:
        """Whether a start would know, too, what is to be sent anew."""
        return self._disowned.is_durable

    @property
    def first_request(self) -> int:
        """The packet identifier of SUBSCRIBE, or the first of some: of no message that the broker may be waiting for
        [MQTT-2.2.1-3], nor of one that goes out before long."""
        behind = self._log.ids(1) or [self._log.last_id + 1]
        if self._unreleased is not None:
            behind += self._unreleased.ids
        return packet_identifier(min(behind) - REQUESTS)

    @property
    def attached(self) -> bool:
        return self._connection is not None

    def detach(self) -> None:
        """The connection is lost."""
        self._connection = None
        self._sent = 0
        self._on_the_way = {}
        self._owed, self._owed_ms = [], None  # when the session goes on, the broker says it again
        self._anew = []
        if self._refusals is not None:
            self._refusals.detach()

    def forget(self) -> None:
        """What the last broker refused, where another one is there now."""
        if self._refusals is not None:
            self._refusals.forget()

    def fill(self, now_ms: int) -> bool:
        """Sends a message if the window has a place; returns whether there may be another one to send.

        One at a time, so that not a whole window of them has to be in RAM at once.
        """
        self._release_dropped()
        self._is_in_doubt = self._is_in_doubt and bool(self._on_the_way)
        refusals = self._refusals
        while not self._is_in_doubt and self._places() > 0:
            anew = self._next_anew(now_ms)
            message = next(self._log.messages(self._sent if anew is None else anew - 1), None)
            if anew is not None and (message is None or message[0] != anew):
                self._anew.pop(0)  # it is gone
            elif message is None:
                if refusals is None or not refusals.skipped or self._on_the_way or refusals.is_waiting:
                    return False
                self._sent, refusals.skipped = refusals.skipped - 1, 0
            elif anew is None and self._on_the_way.get(packet_identifier(message[0])) == message[0]:
                self._sent = message[0]  # its PUBREL went out
            elif anew is None and refusals is not None and refusals.sets_back(message[0]):
                self._sent = message[0]
            elif self._is_taken(message[0]):
                return False
            else:
                self._send_next(message, anew, now_ms)
                return True
        return False

    def send_unstored(self) -> bool:
        """Sends a message of QoS 0; False where there is none."""
        if self._unstored is None or self._connection is None or (message := self._unstored.take()) is None:
            return False
        topic, payload, retain = message
        try:
            self._connection.publish(topic, payload, qos=0, retain=retain)
        except WireError as error:
            self._unstored.dropped += 1
            self._say(f"message at QoS 0 dropped: {error}")
        return True

    def handle_puback(self, puback, now_ms: int) -> None:
        """The broker has the message, or refuses it."""
        message_id = self._on_the_way.pop(puback.packet_identifier, None)
        if message_id is None:
            return
        if puback.reason_code >= UNSPECIFIED_ERROR:
            self._refuse(message_id, puback, now_ms)
        else:
            self._say_remark(message_id, puback)
            self._acknowledge(message_id, now_ms)

    def handle_pubrec(self, pubrec, now_ms: int) -> None:
        """The broker has the QoS 2 message, or refuses it. Without room for a note of it no PUBREL may go out yet."""
        message_id = self._on_the_way.get(pubrec.packet_identifier)
        if message_id is None:
            return
        if pubrec.reason_code >= UNSPECIFIED_ERROR:
            self._on_the_way.pop(pubrec.packet_identifier)
            self._refuse(message_id, pubrec, now_ms)
            return
        self._say_remark(message_id, pubrec)
        if not self._owed:
            self._owed_ms = now_ms
        self._owed.append(message_id)
        self.handle_timer(now_ms)

    def handle_pubcomp(self, pubcomp, now_ms: int) -> None:
        """The broker has released the message; one that it does not know (any more) it had released before."""
        message_id = self._on_the_way.pop(pubcomp.packet_identifier, None)
        if message_id is None:
            return
        is_unknown = pubcomp.reason_code == PACKET_IDENTIFIER_NOT_FOUND
        if is_unknown and self._is_in_doubt and self._log.holds(message_id):
            self._disowned.change(self._disowned.ids + [message_id])
            self._anew.append(message_id)
        else:
            self._acknowledge(message_id, now_ms)

    def handle_retry(self, retry, now_ms: int) -> None:
        """Over MQTT 3.1.1 these have waited too long for an answer."""
        for identifier in retry.packet_identifiers:
            message_id = self._on_the_way.get(identifier)
            message = None if message_id is None else next(self._log.messages(message_id - 1), None)
            if message is not None and message[0] == message_id:
                self._send(message, True, now_ms)

    def handle_close(self, reason_code: int | None, text: str, now_ms: int) -> None:
        """The broker has ended the connection, maybe over a message; `reason_code` is of its DISCONNECT, if any."""
        answered = self._taken() + self._owed
        sent = [one for one in self._on_the_way.values() if one not in answered and self._log.holds(one)]
        if self._refusals is None and min(sent, default=0) != self._left:
            self._left = min(sent, default=0)  # once says nothing, and costs nothing
        elif self._refusals is not None or sent:
            waited_ms = now_ms - self._sent_ms
            self._watch_refusals().end(sent, len(self._on_the_way) == 1, waited_ms, reason_code, text, now_ms)

    def next_timer_ms(self) -> int | None:
        """When `handle_timer` or `fill` wants to be called."""
        refused_ms = None if self._refusals is None else self._refusals.next_timer_ms(not self._on_the_way)
        return earliest([self._flush_ms, self._owed_ms, refused_ms])

    def handle_timer(self, now_ms: int) -> None:
        """Writes acknowledgements and PUBRECs that have waited, lets `fill` send anew what was refused."""
        if self._flush_ms is not None and now_ms >= self._flush_ms:
            self._flush()
        if self._owed_ms is not None and now_ms >= self._owed_ms:
            self._note_owed(now_ms)
        if self._refusals is not None:
            self._anew = self._refusals.take_due(now_ms, self._anew)

    def _places(self) -> int:
        if self._connection is None:
            return 0
        on_the_way = len(self._on_the_way)
        places = WINDOW - on_the_way if self._refusals is None else self._refusals.places(on_the_way)
        return min(self._connection.send_quota, places)

    def _next_anew(self, now_ms: int) -> int | None:
        """The message that goes out before those that have not gone out yet."""
        if self._anew:
            return self._anew[0]
        if self._refusals is None or self._on_the_way:
            return None
        return self._refusals.next_alone(now_ms)

    def _send_next(self, message: tuple, anew: int | None, now_ms: int) -> None:
        message_id = message[0]
        dup = self._session_present and message_id <= self._maybe_sent
        if anew is None:
            self._sent = message_id
        elif self._anew:
            # It counted as acknowledged in MQTT's sense, so that this is no resend [MQTT-4.4.0-2].
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
            self._say_lowered()
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
        except (WireError, MemoryError) as error:  # too large for this broker, say, or for the heap
            if identifier not in self._on_the_way:  # else it has gone out before, and is repeated later
                self._watch_refusals().refuse(message_id, None, str(error), now_ms)
        else:
            self._on_the_way[identifier] = message_id
            if self._unreleased is not None and qos == 2:
                self._unreleased.begin(message_id)

    def _is_taken(self, message_id: int) -> bool:
        """Whether a request, or a message from before the packet identifiers came round, has its packet identifier."""
        assert self._connection is not None
        return self._connection.is_in_use(packet_identifier(message_id))

    def _note_owed(self, now_ms: int) -> None:
        try:
            while self._owed:
                self._log.note_pubrec(self._owed[0])
                self._disowned.remove(self._owed[0])
                self._release(self._owed.pop(0))
            self._owed_ms = None
        except StoreFull:
            self._owed_ms = now_ms + OWED_MS

    def _release(self, message_id: int) -> None:
        assert self._connection is not None
        identifier = packet_identifier(message_id)
        self._on_the_way[identifier] = message_id
        self._connection.pubrel(identifier)

    def _release_dropped(self) -> None:
        """What was on the way when the store dropped it."""
        if self._unreleased is not None and self._connection is not None:
            for message_id in self._unreleased.ids:
                if not self._is_taken(message_id):
                    self._release(message_id)

    def _taken(self) -> list:
        """What the broker has, and waits for the PUBREL of."""
        return [message_id for message_id in self._log.pubrecs() if message_id not in self._disowned.ids]

    def _lose_session(self) -> None:
        if self._unreleased is not None:
            self._unreleased.forget()
        if not self._resends:
            self._forsake(self._taken())
        self._disowned.change(self._log.pubrecs())
        if self._disowned.is_durable:  # until then a start has to ask for the mark, and find none
            remove_setting(self._log, SESSION_MARK)

    def _forsake(self, lost: list) -> None:
        if not lost:
            return
        try:
            self._log.forsake(lost)
        except StoreFull:
            return  # without a gap that tells of them they are resent
        self._say(f"the broker has lost the session, and {len(lost)} messages with it that it had taken")

    def _acknowledge(self, message_id: int, now_ms: int) -> None:
        self._end(message_id)
        if self._refusals is not None:
            self._refusals.take(message_id)
        self._log.acknowledge(message_id)
        if not self._on_the_way:
            self._flush()
        elif self._flush_ms is None:
            self._flush_ms = now_ms + FLUSH_MS

    def _end(self, message_id: int) -> None:
        """The broker waits for nothing more of it."""
        self._disowned.remove(message_id)
        if self._unreleased is not None:
            self._unreleased.end(message_id)

    def _refuse(self, message_id: int, answer, now_ms: int) -> None:
        self._end(message_id)
        from wire.reasons import describe  # most brokers refuse nothing

        text = answer.properties.get(REASON_STRING)
        text = describe(answer.reason_code) + (f", {text}" if text else "")
        self._watch_refusals().refuse(message_id, answer.reason_code, text, now_ms)

    def _watch_refusals(self):
        """From the first refusal on: most brokers refuse nothing."""
        if self._refusals is None:
            self._refusals = self._make_refusals()
        return self._refusals

    def _make_refusals(self):
        from device.refusals import Refusals

        return Refusals(self._log, self._clock, self._say)

    def _say_remark(self, message_id: int, answer) -> None:
        """A gateway that gives a message another identity says so, with its first answer over each connection."""
        text = answer.properties.get(REASON_STRING)
        if text and text != self._remark:
            self._remark = text
            self._say(f"message {message_id} taken, but: {text}")

    def _say_lowered(self) -> None:
        if not self._is_lowered:
            self._is_lowered = True
            self._say("this broker takes QoS 1 at most: messages of QoS 2 go out at QoS 1, with their identity")

    def _flush(self) -> None:
        self._log.flush()
        self._flush_ms = None
