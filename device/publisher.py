"""From flash to the broker: the window of messages on the way, and what becomes of each."""

from device.clock import earliest
from device.payload import content_type
from flash_store.errors import StoreFull
from flash_store.log import packet_identifier
from wire.backoff import Backoff
from wire.client import ClientConnection
from wire.errors import WireError
from wire.identity import IDENTITY_PROPERTY, encode_identity
from wire.properties import CONTENT_TYPE, REASON_STRING, USER_PROPERTY
from wire.reasons import UNSPECIFIED_ERROR

LOST_SESSION = "lost_session"  # a setting, see `device.lost_session`
WINDOW = 8  # messages on the way at most, fewer where the broker wants it so
OWED_MS = 1_000  # from one look whether the store has room for the note of a PUBREC to the next
FLUSH_MS = 1_000  # an acknowledgement waits this long for others to share its record in flash
REFUSED_SHORTEST_MS, REFUSED_LONGEST_MS = 1_000, 30_000


class Publisher:
    """Sends the log's messages, oldest first, and acknowledges them there once the broker has.

    A message keeps its packet identifier and its identity over connections and restarts. One that the broker refuses
    stays in the log and keeps its place in the window until it goes out anew after a pause, so that a broker that
    refuses everything is not flooded and one that refuses a single message gets all others.

    Of QoS 2 a PUBREC is durable before its PUBREL goes out. What a broker that has lost the session had said PUBREC to
    is as good as sent, unless the device is told to resend it.

    Args:
        log: the device's `flash_store.log.Log`.
        say: called with each line for people.
        resends: what had its PUBREC goes out anew where the session is lost.
        unstored: `device.unstored.Unstored` of a device that publishes at QoS 0.
    """

    def __init__(self, log, client_id: str, say, resends: bool = False, unstored=None) -> None:
        self._log = log
        self._client_id = client_id
        self._say = say
        self._unstored = unstored
        self._resends = resends
        self._disowned = _disowned(log) if resends or log.settings.get(LOST_SESSION) else None
        self._is_lowered = False  # whether it was said that QoS 2 messages go out at QoS 1
        self._connection: ClientConnection | None = None
        self._session_present = False
        self._maybe_sent = log.last_id  # up to here messages may have been sent, in this boot or an earlier one
        self._sent = 0  # up to here they were sent over this connection
        self._on_the_way: dict = {}  # packet identifier: message id
        self._owed: list = []  # message ids whose PUBREC could not be noted yet
        self._owed_ms: int | None = None
        self._tried: list = []  # what went out anew the last time
        self._skipped = 0  # from this message on some are refused that others were let pass
        self._refused: list = []  # message ids
        self._anew: list = []  # ids of refused ones whose pause is over
        self._refused_backoff = Backoff(REFUSED_SHORTEST_MS, REFUSED_LONGEST_MS)
        self._refused_until_ms: int | None = None
        self._flush_ms: int | None = None

    def attach(self, connection, session_present: bool) -> None:
        """A connection that the broker has accepted: everything unacknowledged goes out (again), PUBRELs first.

        Raises StoreFull where what has to be noted before has no room.
        """
        self.detach()
        if not session_present:
            self._lose_session()
        self._connection = connection
        self._session_present = session_present
        for message_id in self._log.pubrecs():
            if not self._is_disowned(message_id):
                self._release(message_id)

    @property
    def attached(self) -> bool:
        return self._connection is not None

    def detach(self) -> None:
        """The connection is lost."""
        self._connection = None
        self._sent = 0
        self._on_the_way = {}
        self._owed, self._owed_ms = [], None  # when the session goes on, the broker says it again
        self._skipped = 0
        self._refused = []
        self._anew = []
        self._refused_until_ms = None
        self._refused_backoff.reset()

    def fill(self, now_ms: int) -> bool:
        """Sends a message if the window has a place; returns whether there may be another one to send.

        One at a time, so that not a whole window of them has to be in RAM at once.
        """
        if self._unstored is not None:
            self._send_unstored()
        while self._places() > 0:
            anew = self._anew.pop(0) if self._anew else None
            message = next(self._log.messages(self._sent if anew is None else anew - 1), None)
            if message is None and self._skipped and not (self._on_the_way or self._refused):
                self._sent, self._skipped = self._skipped - 1, 0
                continue
            if message is None:
                return False
            if anew is None:
                self._sent = message[0]
                if packet_identifier(self._sent) in self._on_the_way:
                    continue  # its PUBREL went out
                self._send(message, self._session_present and self._sent <= self._maybe_sent, now_ms)
                self._maybe_sent = max(self._maybe_sent, self._sent)
            elif message[0] == anew:
                # It counted as acknowledged in MQTT's sense, so that this is no resend [MQTT-4.4.0-2].
                self._send(message, False, now_ms)
            return True
        return False

    def handle_puback(self, puback, now_ms: int) -> None:
        """The broker has the message, or refuses it."""
        message_id = self._on_the_way.pop(puback.packet_identifier, None)
        if message_id is None:
            return
        if puback.reason_code >= UNSPECIFIED_ERROR:
            self._refuse(message_id, puback, now_ms)
        else:
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
        if not self._owed:
            self._owed_ms = now_ms
        self._owed.append(message_id)
        self.handle_timer(now_ms)

    def handle_pubcomp(self, pubcomp, now_ms: int) -> None:
        """The broker has released the message; one that it does not know (any more) it had released before."""
        message_id = self._on_the_way.pop(pubcomp.packet_identifier, None)
        if message_id is not None:
            self._acknowledge(message_id, now_ms)

    def handle_retry(self, retry, now_ms: int) -> None:
        """Over MQTT 3.1.1 these have waited too long for an answer."""
        for identifier in retry.packet_identifiers:
            message_id = self._on_the_way.get(identifier)
            message = None if message_id is None else next(self._log.messages(message_id - 1), None)
            if message is not None and message[0] == message_id:
                self._send(message, True, now_ms)

    def next_timer_ms(self) -> int | None:
        """When `handle_timer` wants to be called."""
        return earliest([self._flush_ms, self._owed_ms, self._refused_until_ms])

    def handle_timer(self, now_ms: int) -> None:
        """Writes acknowledgements and PUBRECs that have waited, lets `fill` send anew what was refused."""
        if self._flush_ms is not None and now_ms >= self._flush_ms:
            self._flush()
        if self._owed_ms is not None and now_ms >= self._owed_ms:
            self._note_owed(now_ms)
        if self._refused_until_ms is not None and now_ms >= self._refused_until_ms:
            self._refused_until_ms = None
            self._try_refused_anew()

    def _places(self) -> int:
        if self._connection is None:
            return 0
        return min(self._connection.send_quota, WINDOW - len(self._on_the_way) - len(self._refused))

    def _send(self, message: tuple, dup: bool, now_ms: int) -> None:
        message_id, qos, retain, topic, payload = message
        assert self._connection is not None
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
        except WireError as error:  # too large for this broker, say
            self._keep(message_id, str(error), now_ms)
        else:
            self._on_the_way[identifier] = message_id

    def _send_unstored(self) -> None:
        while self._connection is not None and (message := self._unstored.take()) is not None:
            topic, payload, retain = message
            try:
                self._connection.publish(topic, payload, qos=0, retain=retain)
            except WireError as error:
                self._unstored.dropped += 1
                self._say(f"message at QoS 0 dropped: {error}")

    def _try_refused_anew(self) -> None:
        """Those that fill the window twice let the others pass, and have their turn behind the last of them."""
        refused, self._refused = sorted(self._anew + self._refused), []
        if len(refused) < WINDOW or refused != self._tried:
            self._anew, self._tried = refused, refused[:]
        else:
            self._anew = []
            self._skipped = min(refused[0], self._skipped or refused[0])

    def _is_disowned(self, message_id: int) -> bool:
        return self._disowned is not None and message_id in self._disowned

    def _note_owed(self, now_ms: int) -> None:
        try:
            while self._owed:
                self._log.note_pubrec(self._owed[0])
                if self._disowned is not None:
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

    def _lose_session(self) -> None:
        if not self._resends:
            lost = [message_id for message_id in self._log.pubrecs() if not self._is_disowned(message_id)]
            for message_id in lost:
                self._log.acknowledge(message_id)
            self._flush()
            if lost:
                self._say(f"the broker has lost the session, and {len(lost)} messages with it that it had taken")
        elif self._disowned is not None:
            self._disowned.add(self._log.pubrecs())

    def _acknowledge(self, message_id: int, now_ms: int) -> None:
        self._log.acknowledge(message_id)
        if not self._on_the_way:
            self._flush()
        elif self._flush_ms is None:
            self._flush_ms = now_ms + FLUSH_MS

    def _refuse(self, message_id: int, answer, now_ms: int) -> None:
        from wire.reasons import describe  # most brokers refuse nothing

        text = answer.properties.get(REASON_STRING)
        self._keep(message_id, describe(answer.reason_code) + (f", {text}" if text else ""), now_ms)

    def _say_lowered(self) -> None:
        if not self._is_lowered:
            self._is_lowered = True
            self._say("this broker takes QoS 1 at most: messages of QoS 2 go out at QoS 1, with their identity")

    def _keep(self, message_id: int, text: str, now_ms: int) -> None:
        self._refused.append(message_id)
        if self._refused_until_ms is None:
            wait_ms = self._refused_backoff.next_wait_ms()
            self._refused_until_ms = now_ms + wait_ms
            self._say(f"message {message_id} refused: {text}; kept, it goes out anew in {wait_ms} ms")

    def _flush(self) -> None:
        self._log.flush()
        self._flush_ms = None


def _disowned(log):
    from device.lost_session import Disowned

    return Disowned(log)
