"""From flash to the broker: the window of messages on the way, and what becomes of each."""

from device.clock import earliest
from device.payload import content_type
from flash_store.log import packet_identifier
from wire.backoff import Backoff
from wire.client import ClientConnection
from wire.errors import WireError
from wire.identity import IDENTITY_PROPERTY, encode_identity
from wire.properties import CONTENT_TYPE, REASON_STRING, USER_PROPERTY
from wire.reasons import UNSPECIFIED_ERROR, describe

WINDOW = 8  # messages on the way at most, fewer where the broker wants it so
FLUSH_MS = 1_000  # an acknowledgement waits this long for others to share its record in flash
REFUSED_SHORTEST_MS, REFUSED_LONGEST_MS = 1_000, 30_000


class Publisher:
    """Sends the log's messages, oldest first, and acknowledges them there once the broker has.

    A message keeps its packet identifier and its identity over connections and restarts. One that the broker refuses
    stays in the log and keeps its place in the window until it goes out anew after a pause, so that a broker that
    refuses everything is not flooded and one that refuses a single message gets all others.

    Args:
        log: the device's `flash_store.log.Log`.
        say: called with each line for people.
    """

    def __init__(self, log, client_id: str, say) -> None:
        self._log = log
        self._client_id = client_id
        self._say = say
        self._connection: ClientConnection | None = None
        self._session_present = False
        self._maybe_sent = log.last_id  # up to here messages may have been sent, in this boot or an earlier one
        self._sent = 0  # up to here they were sent over this connection
        self._on_the_way: dict = {}  # packet identifier: message id
        self._refused: list = []  # message ids
        self._anew: list = []  # ids of refused ones whose pause is over
        self._refused_backoff = Backoff(REFUSED_SHORTEST_MS, REFUSED_LONGEST_MS)
        self._refused_until_ms: int | None = None
        self._flush_ms: int | None = None

    def attach(self, connection, session_present: bool) -> None:
        """A connection that the broker has accepted: everything unacknowledged goes out (again)."""
        self.detach()
        self._connection = connection
        self._session_present = session_present

    @property
    def attached(self) -> bool:
        return self._connection is not None

    def detach(self) -> None:
        """The connection is lost."""
        self._connection = None
        self._sent = 0
        self._on_the_way = {}
        self._refused = []
        self._anew = []
        self._refused_until_ms = None
        self._refused_backoff.reset()

    def fill(self, now_ms: int) -> None:
        """Sends as many messages as the window has places for."""
        while self._places() > 0:
            anew = self._anew.pop(0) if self._anew else None
            message = next(self._log.messages(self._sent if anew is None else anew - 1), None)
            if message is None:
                return
            if anew is None:
                self._sent = message[0]
                self._send(message, self._session_present and self._sent <= self._maybe_sent, now_ms)
                self._maybe_sent = max(self._maybe_sent, self._sent)
            elif message[0] == anew:
                # It counted as acknowledged in MQTT's sense, so that this is no resend [MQTT-4.4.0-2].
                self._send(message, False, now_ms)

    def handle_puback(self, puback, now_ms: int) -> None:
        """The broker has the message, or refuses it."""
        message_id = self._on_the_way.pop(puback.packet_identifier, None)
        if message_id is None:
            return
        if puback.reason_code >= UNSPECIFIED_ERROR:
            text = puback.properties.get(REASON_STRING)
            self._keep(message_id, describe(puback.reason_code) + (f", {text}" if text else ""), now_ms)
            return
        self._log.acknowledge(message_id)
        if not self._on_the_way:
            self._flush()
        elif self._flush_ms is None:
            self._flush_ms = now_ms + FLUSH_MS

    def next_timer_ms(self) -> int | None:
        """When `handle_timer` wants to be called."""
        return earliest([self._flush_ms, self._refused_until_ms])

    def handle_timer(self, now_ms: int) -> None:
        """Writes acknowledgements that have waited, lets `fill` send anew what was refused."""
        if self._flush_ms is not None and now_ms >= self._flush_ms:
            self._flush()
        if self._refused_until_ms is not None and now_ms >= self._refused_until_ms:
            self._refused_until_ms = None
            self._anew, self._refused = sorted(self._anew + self._refused), []

    def _places(self) -> int:
        if self._connection is None:
            return 0
        return min(self._connection.send_quota, WINDOW - len(self._on_the_way) - len(self._refused))

    def _send(self, message: tuple, dup: bool, now_ms: int) -> None:
        message_id, qos, retain, topic, payload = message
        identifier = packet_identifier(message_id)
        identity = encode_identity(self._client_id, self._log.epoch, message_id)
        properties: dict = {USER_PROPERTY: [(IDENTITY_PROPERTY, identity)]}
        kind = content_type(payload)
        if kind is not None:
            properties[CONTENT_TYPE] = kind
        assert self._connection is not None
        try:
            self._connection.publish(
                topic, payload, qos=qos, retain=retain, dup=dup, properties=properties, packet_identifier=identifier
            )
        except WireError as error:  # too large for this broker, say
            self._keep(message_id, str(error), now_ms)
        else:
            self._on_the_way[identifier] = message_id

    def _keep(self, message_id: int, text: str, now_ms: int) -> None:
        self._refused.append(message_id)
        if self._refused_until_ms is None:
            wait_ms = self._refused_backoff.next_wait_ms()
            self._refused_until_ms = now_ms + wait_ms
            self._say(f"message {message_id} refused: {text}; kept, it goes out anew in {wait_ms} ms")

    def _flush(self) -> None:
        self._log.flush()
        self._flush_ms = None
