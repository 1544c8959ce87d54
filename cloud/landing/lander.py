"""The lander: it subscribes to the central broker, writes messages into landing files, and then acknowledges them.

One thread runs one loop: it reads packets into `Held`. When `Held` is full or old enough, it writes a landing file and
its manifest, and then sends the acknowledgements. Until then the broker has custody: a lander that is killed loses
nothing.
"""

import secrets
import select
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from cloud.landing.batch import count_numbers, to_links, to_table
from cloud.landing.file import LANDER_NAME, Row, join
from cloud.landing.folder import LandingFolder
from wire.backoff import Backoff
from wire.bulk.column_batch import CONTENT_TYPE as COLUMN_BATCH
from wire.bulk.column_batch import MalformedBatch, decode_batch
from wire.errors import WireError
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
from wire.link_numbers import VIA_PROPERTY, Via, decode_via
from wire.topics import check_topic_filter

if TYPE_CHECKING:
    from paho.mqtt.client import SocketLike

ROWS_MAX = 100_000
PAYLOAD_BYTES_MAX = 64 << 20
RECEIVE_MAXIMUM = 65_535
"""The most messages that MQTT lets a broker send ahead of their acknowledgements."""
SESSION_EXPIRY_NEVER = 0xFFFF_FFFF
KEEP_ALIVE_S = 60
RETRY_MS = (250, 30_000)
POLL_S = 0.05
"""How soon the loop notices a signal, a file that is due, or a broker that has stopped sending."""
STALL_S = 5.0
"""A broker that sends as many messages as before within this time, and then stops, waits for acknowledgements."""
LEAVE_S = 10.0


class LandingFailed(Exception):
    """The last landing file of a lander that was told to stop could not be written. The broker keeps its messages."""


class Held:
    """Rows in order of arrival, and the packet identifiers that wait for their PUBACK.

    A piece is a row, or the rows of a column batch as a table. The broker has custody of the pieces of QoS 1 until they
    are acknowledged. Pieces of QoS 0 are held here alone.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forgets all rows and packet identifiers."""
        self.pieces: list[Row | pa.Table] = []
        self.rows = 0
        self.unacknowledged: list[int] = []
        self._of_qos_0: list[Row | pa.Table] = []
        self._payload_bytes = 0

    def add(self, piece: Row | pa.Table, qos: int, packet_identifier: int) -> None:
        """Adds a row, or a table of rows, that came in one PUBLISH. `packet_identifier` is used for QoS 1 only."""
        self.pieces.append(piece)
        self.rows += 1 if isinstance(piece, Row) else piece.num_rows
        self._payload_bytes += len(piece.payload) if isinstance(piece, Row) else piece["payload"].nbytes
        if qos > 0:
            self.unacknowledged.append(packet_identifier)
        else:
            self._of_qos_0.append(piece)

    @property
    def full(self) -> bool:
        """Whether it is time to land, however young the rows are."""
        return (
            self.rows >= ROWS_MAX
            or self._payload_bytes >= PAYLOAD_BYTES_MAX
            or len(self.unacknowledged) >= RECEIVE_MAXIMUM
        )

    def leave_to_broker(self) -> None:
        """Drops the rows of QoS 1: the broker still has them and sends them again."""
        kept = self._of_qos_0
        self.clear()
        for piece in kept:
            self.add(piece, 0, 0)

    def forget_session(self) -> None:
        """Forgets the packet identifiers, since the broker has lost the session. The rows stay."""
        self.unacknowledged.clear()


def parse_broker(url: str) -> tuple[str, int]:
    """Returns host and port of "mqtt://host:port". Raises ValueError; its text never shows a password."""
    if "@" in url:
        raise ValueError("expected mqtt://host:port without a user and a password: a lander cannot log in yet")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{url!r}: {error}") from None
    extra = parts.path.strip("/") or parts.query or parts.fragment
    if parts.scheme != "mqtt" or not host or extra:
        raise ValueError(f"{url!r} is not of the form mqtt://host:port")
    return host, port or 1883


def land(
    broker: str,
    landing: Path | str,
    stop: Event,
    *,
    name: str = "lander-1",
    topic_filter: str = "#",
    group: str = "lander",
    roll_s: float = 60.0,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Writes messages from a broker into landing files until `stop` is set, then lands and acknowledges the rest.

    A message is acknowledged only after its landing file and the manifest are on the disk, so a process that is
    killed loses nothing: the broker sends again what was not acknowledged. `land` blocks; set `stop` from a signal
    handler, a timer or another thread. While the broker cannot be reached, or the folder cannot be written, `land`
    tries again until it works.

    broker: the broker's URL, "mqtt://HOST:PORT". The port may be left out (1883).
    landing: the folder for landing files. It is made where it does not exist.
    stop: ends `land` once it is set.
    name: the lander's name: its client identifier, and the beginning of its files' names. Letters, digits, ".", "_"
        and "-" only. One process at a time lands under a name.
    topic_filter: the MQTT topic filter to subscribe to.
    group: the share group. The landers of a group divide the messages among them.
    roll_s: the longest time in seconds that a message waits for its landing file, above 0.
    say: is called with one line of text for each event, for people.

    Raises ValueError for a bad argument, LanderRunning when another process lands under this name in this folder,
    OSError when the folder cannot be used at the start, and LandingFailed when the last file cannot be written.
    """
    parse_broker(broker)
    if not LANDER_NAME.fullmatch(name):
        raise ValueError(f"name {name!r}: letters, digits, '.', '_' and '-' only, it becomes a file name")
    try:
        check_topic_filter(f"$share/{group}/{topic_filter}")
    except WireError as error:
        raise ValueError(str(error)) from None
    if not roll_s > 0:
        raise ValueError(f"roll_s is {roll_s}, expected a number of seconds above 0")
    folder = LandingFolder(Path(landing), name, secrets.randbits(32))
    try:
        for leftover in folder.leftovers:
            say(f"removed {leftover}, left by a killed lander and never acknowledged")
        Lander(broker, folder, topic_filter, group, roll_s, say).run(stop)
    except OSError as error:
        raise LandingFailed(f"cannot land in {folder.path}: {error}; the broker keeps the rest") from error
    finally:
        folder.close()


class Lander:
    """Lands the messages of `topic_filter` as one member of a share group. `land` describes the arguments."""

    def __init__(
        self,
        broker: str,
        folder: LandingFolder,
        topic_filter: str,
        group: str,
        roll_s: float,
        say: Callable[[str], None],
    ) -> None:
        """Raises ValueError when `broker` is not the URL of a broker."""
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
        """Runs until `stop` is set, then lands what it holds. Raises OSError when that last landing fails."""
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
        """Reads one packet and writes what waits. Returns whether a packet came within POLL_S."""
        client = self._client
        # A lander that cannot land stops reading: so the broker cannot fill its memory.
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
        """Disconnects once the broker has read every acknowledgement: it answers one more SUBSCRIBE after them.

        Messages that are still on their way here would turn an earlier close into a TCP reset, and the broker would
        never read the acknowledgements that were on their way to it.
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
        if getattr(message.properties, "ContentType", None) != COLUMN_BATCH or not self._take_batch(message):
            self._hold(self._row(message, bytes(message.payload), _vias(message)), message)

    def _take_batch(self, message: MQTTMessage) -> bool:
        """Holds the messages of a column batch. False if it cannot be decoded: then it lands as it is."""
        try:
            batch = decode_batch(bytes(message.payload))
        except MalformedBatch as error:
            self._say(f"{message.topic}: a column batch that cannot be decoded lands as it is ({error})")
            return False
        of_messages, of_batch = _vias(message)[:1], _vias(message)[1:]
        via = self._via_of_batch(message, of_messages[0], len(batch)) if of_messages else None
        rows = to_table(batch, time.time_ns() // 1_000_000, message.qos, self._folder.lander, via)
        if _user_property(message, IDENTITY_PROPERTY) is not None:
            # A Holdfast gateway gave the batch a number: without a row it would look lost.
            rows = join([rows, self._row(message, b"", of_batch)])
        self._hold(rows, message)
        return True

    def _via_of_batch(self, message: MQTTMessage, value: str, messages: int) -> Via | None:
        """Returns the numbers of the link of the messages in a batch, None if they cannot be those."""
        try:
            via = decode_via(value)
            if count_numbers(via) != messages:
                raise ValueError(f"{count_numbers(via)} numbers for {messages} messages")
        except ValueError as error:
            self._say(f"{message.topic}: {VIA_PROPERTY} of a batch left out ({error})")
            return None
        return via

    def _row(self, message: MQTTMessage, payload: bytes, vias: list[str]) -> Row:
        origin, epoch, seq = self._identify(message, _user_property(message, IDENTITY_PROPERTY))
        received_ms, gateway = self._provenance(message, _user_property(message, RECEIVED_PROPERTY))
        links, errors = to_links(vias)
        for error in errors:
            self._say(f"{message.topic}: {VIA_PROPERTY} left out ({error})")
        return Row(
            origin=origin,
            epoch=epoch,
            seq=seq,
            received_ms=received_ms,
            gateway=gateway,
            landed_ms=time.time_ns() // 1_000_000,
            topic=message.topic,
            qos=message.qos,
            retain=message.retain,
            content_type=getattr(message.properties, "ContentType", None),
            payload=payload,
            lander=self._folder.lander,
            via=links,
        )

    def _hold(self, piece: Row | pa.Table, message: MQTTMessage) -> None:
        if not self._held.rows:
            self._first_at = time.monotonic()
        self._held.add(piece, message.qos, message.mid)

    def _identify(self, message: MQTTMessage, text: str | None) -> tuple[str, int, int]:
        if text is not None:
            try:
                return decode_identity(text)
            except ValueError as error:
                self._say(f"{message.topic}: {IDENTITY_PROPERTY} is not an identity ({error}); the lander gives one")
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
        """Whether the broker's window is smaller than ours and full: it sends nothing more until we acknowledge."""
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
                f"{self._held.rows} messages stay unacknowledged until it works"
            )

    def _land(self) -> None:
        manifest = self._folder.land(self._held.pieces)
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
        """Says a line, but not twice in a row."""
        if text != self._told:
            self._told = text
            self._say(text)


def _user_property(message: MQTTMessage, name: str) -> str | None:
    return find_user_property({USER_PROPERTY: getattr(message.properties, "UserProperty", [])}, name)


def _vias(message: MQTTMessage) -> list[str]:
    """Returns the values of `hf-via` in their order, the earliest link first."""
    return [value for name, value in getattr(message.properties, "UserProperty", []) if name == VIA_PROPERTY]
