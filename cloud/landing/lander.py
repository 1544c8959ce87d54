"""The lander: a shared subscription at the central broker, landed as files, and only then acknowledged.

One thread and one loop: read packets into `Held`; when that is full or old enough, write file and manifest, and
send the acknowledgements. Until then the broker has custody, so whatever happens to this process loses nothing.
"""

import secrets
import select
import time
from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from cloud.held import RECEIVE_MAXIMUM, Held
from cloud.landing_file import Row
from cloud.landing_folder import LandingFolder
from wire.backoff import Backoff
from wire.identity import (
    IDENTITY_PROPERTY,
    RECEIVE,
    RECEIVED_PROPERTY,
    USER_PROPERTY,
    WISH_PROPERTY,
    decode_identity,
    decode_received,
    find_user_property,
)

if TYPE_CHECKING:
    from paho.mqtt.client import SocketLike

SESSION_EXPIRY_NEVER = 0xFFFF_FFFF
KEEP_ALIVE_S = 60
RETRY_MS = (250, 30_000)
POLL_S = 0.05
"""How soon the loop notices a signal, a due roll, or a broker that has fallen silent."""
STALL_S = 5.0
"""A broker that sends in less than this as many messages as before, and then nothing, waits for acknowledgements."""
LEAVE_S = 10.0


def parse_broker(url: str) -> tuple[str, int]:
    """Host and port of "mqtt://host:port". Raises ValueError, whose text has no password."""
    if "@" in url:
        raise ValueError("expected mqtt://host:port, without a user and a password: a lander cannot log in yet")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{url!r}: {error}") from None
    extra = parts.path.strip("/") or parts.query or parts.fragment
    if parts.scheme != "mqtt" or not host or extra:
        raise ValueError(f"{url!r} is not of the form mqtt://host:port")
    return host, port or 1883


class Lander:
    """Lands what the broker has for `topic_filter`, as one member of the share `group`. `say` gets a line an event."""

    def __init__(
        self,
        broker: str,
        folder: LandingFolder,
        topic_filter: str,
        group: str,
        roll_s: float,
        say: Callable[[str], None],
    ) -> None:
        """Raises ValueError when `broker` is not a URL of a broker."""
        self._url = broker
        self._host, self._port = parse_broker(broker)
        self._folder = folder
        self._subscription = f"$share/{group}/{topic_filter}"
        self._roll_s = roll_s
        self._say = say
        self._held = Held()
        self._own_seq = 0
        self._connected = False
        self._leaving = False
        self._told: str | None = None
        self._backoff = Backoff(*RETRY_MS)
        self._retry_at = 0.0
        self._first_at = 0.0
        self._rolled_at = 0.0
        self._last_window = 0
        self._client = self._new_client()

    def run(self, stop: Event) -> None:
        """Until `stop` is set; then lands what it holds. Raises OSError when that last landing fails."""
        while not stop.is_set():
            socket = self._client.socket()
            if socket is None:
                self._connect(stop)
                continue
            silent = not self._exchange(socket)
            if self._connected and self._held.rows and self._due(silent):
                self._try_to_land()
        if not self._connected:
            self._held.leave_to_broker()
        if self._held.rows:
            self._land()
        self._leave()

    # The connection

    def _new_client(self) -> Client:
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._folder.lander,
            protocol=MQTTProtocolVersion.MQTTv5,
            manual_ack=True,
        )
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        return client

    def _connect(self, stop: Event) -> None:
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = SESSION_EXPIRY_NEVER
        properties.ReceiveMaximum = RECEIVE_MAXIMUM
        properties.UserProperty = (WISH_PROPERTY, RECEIVE)
        if stop.wait(max(0.0, self._retry_at - time.monotonic())):
            return
        self._retry_later()
        try:
            self._client.connect(self._host, self._port, KEEP_ALIVE_S, clean_start=False, properties=properties)
        except OSError as error:
            self._say_once(f"cannot reach {self._url}: {error.strerror or error}; trying again until it answers")

    def _exchange(self, socket: "SocketLike") -> bool:
        """Reads one packet and writes what waits; returns whether something came within POLL_S."""
        client = self._client
        # Not reading is how a lander that cannot land keeps a broker from filling its memory.
        reading = [] if self._held.full else [socket]
        readable, writable, _ = select.select(reading, [socket] if client.want_write() else [], [], POLL_S)
        if readable:
            client.loop_read()
        if writable:
            client.loop_write()
        client.loop_misc()
        return bool(readable)

    def _on_connect(self, client: Client, _u: Any, flags: ConnectFlags, reason: ReasonCode, _p: Any) -> None:
        if reason.is_failure:
            self._say_once(f"{self._url} refuses the connection: {reason}; trying again until it accepts")
            return
        if flags.session_present:
            self._held.leave_to_broker()
        else:
            self._held.forget_session()
        client.subscribe(self._subscription, qos=1)  # at QoS 2 the broker would give custody away at PUBREC

    def _on_subscribe(self, client: Client, _u: Any, _mid: int, reasons: list[ReasonCode], _p: Any) -> None:
        if self._leaving:
            client.disconnect()
            return
        if reasons[0].is_failure:
            self._say_once(f"{self._url} refuses {self._subscription}: {reasons[0]}; trying again until it accepts")
            client.disconnect()
            return
        self._connected = True
        self._told = None
        self._retry_at = 0.0
        self._backoff.reset()
        self._say(f"connected to {self._url}, subscribed to {self._subscription}")

    def _on_disconnect(self, _c: Client, _u: Any, _flags: DisconnectFlags, reason: ReasonCode, _p: Any) -> None:
        if self._connected:
            self._say(f"connection to {self._url} lost: {reason}")
        self._connected = False

    def _leave(self) -> None:
        """Disconnects once the broker has read every acknowledgement, as its answer to one more request shows.

        Without that, messages still on their way to us would make the close a reset, which takes what the broker
        has not read yet with it.
        """
        if self._connected:
            self._connected = False
            self._leaving = True
            self._client.subscribe(self._subscription, qos=1)
        else:
            self._client.disconnect()
        deadline = time.monotonic() + LEAVE_S
        while (socket := self._client.socket()) is not None and time.monotonic() < deadline:
            self._held.clear()
            self._exchange(socket)

    # The messages

    def _on_message(self, _client: Client, _userdata: Any, message: MQTTMessage) -> None:
        properties = message.properties
        pairs = {USER_PROPERTY: getattr(properties, "UserProperty", [])}
        origin, epoch, seq = self._identify(message, find_user_property(pairs, IDENTITY_PROPERTY))
        received_ms, gateway = self._provenance(message, find_user_property(pairs, RECEIVED_PROPERTY))
        row = Row(
            origin=origin,
            epoch=epoch,
            seq=seq,
            received_ms=received_ms,
            gateway=gateway,
            landed_ms=time.time_ns() // 1_000_000,
            topic=message.topic,
            qos=message.qos,
            retain=message.retain,
            content_type=getattr(properties, "ContentType", None),
            payload=bytes(message.payload),
            lander=self._folder.lander,
        )
        if not self._held.rows:
            self._first_at = time.monotonic()
        self._held.add(row, message.mid)

    def _identify(self, message: MQTTMessage, text: str | None) -> tuple[str, int, int]:
        if text is not None:
            try:
                return decode_identity(text)
            except ValueError as error:
                self._say(f"{message.topic}: {IDENTITY_PROPERTY} is not an identity ({error}); given one of ours")
        self._own_seq += 1
        return self._folder.lander, self._folder.boot, self._own_seq

    def _provenance(self, message: MQTTMessage, text: str | None) -> tuple[int | None, str | None]:
        try:
            return decode_received(text) if text is not None else (None, None)
        except ValueError as error:
            self._say(f"{message.topic}: {RECEIVED_PROPERTY} left out ({error})")
            return None, None

    # The landing

    def _due(self, silent: bool) -> bool:
        now = time.monotonic()
        if now < self._retry_at:
            return False
        return self._held.full or now - self._first_at >= self._roll_s or (silent and self._broker_waits(now))

    def _broker_waits(self, now: float) -> bool:
        """Whether the broker's own window is smaller than ours and now full: it sends nothing until we acknowledge."""
        window = len(self._held.unacknowledged)
        if window == 0 or window != self._last_window or now - self._rolled_at > STALL_S:
            return False
        self._say_once(f"{self._url} sends at most {window} messages ahead of their acknowledgement: files stay small")
        return True

    def _try_to_land(self) -> None:
        try:
            self._land()
        except OSError as error:
            self._retry_later()
            self._say_once(
                f"cannot land in {self._folder.path}: {error.strerror or error}; "
                f"{len(self._held.rows)} messages stay unacknowledged until it works"
            )

    def _land(self) -> None:
        manifest = self._folder.land(self._held.rows)
        for packet_identifier in self._held.unacknowledged:
            self._client.ack(packet_identifier, 1)
        self._say(f"landed {manifest.file}: {manifest.rows} messages, {manifest.bytes} bytes")
        self._last_window = len(self._held.unacknowledged)
        self._rolled_at = time.monotonic()
        self._held.clear()
        self._backoff.reset()

    def _retry_later(self) -> None:
        self._retry_at = time.monotonic() + self._backoff.next_wait_ms() / 1000

    def _say_once(self, text: str) -> None:
        """Leaves out what was the last thing said of this kind."""
        if text != self._told:
            self._told = text
            self._say(text)


def new_boot() -> int:
    """A number for this life of a lander; also the epoch of the identities that it gives."""
    return secrets.randbits(32)
