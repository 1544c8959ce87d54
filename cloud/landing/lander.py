"""The lander: it subscribes to the central broker, writes messages into landing files, and then acknowledges them.

One thread runs one loop: it reads packets into `Held`. When `Held` is full or old enough, it writes a landing file and
its manifest, and then sends the acknowledgements. Until then the broker has custody: a lander that is killed loses
nothing.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import numpy as np
import pyarrow as pa

from cloud.landing.connect.subscriber import Subscriber
from cloud.landing.file import LANDER_NAME, Row
from cloud.landing.folder import LandingFolder, SyncFailed
from cloud.landing.health import HealthServer, Metrics
from cloud.landing.held import Held, Piece
from cloud.landing.manifest import Manifest
from cloud.landing.publishes import Published
from cloud.landing.remarks import Notices
from cloud.landing.rows import MessageRows
from cloud.storage.place import open_storage
from host.credentials import Credentials
from host.errors import ConfigError
from host.server import Server, parse_server
from wire.backoff import Backoff
from wire.bulk.column_batch import CONTENT_TYPE as COLUMN_BATCH
from wire.codec import Packet
from wire.codec.packets import Connack, Disconnect, Publish, Suback
from wire.errors import Closed, WireError
from wire.properties import CONTENT_TYPE
from wire.reasons import SESSION_TAKEN_OVER, SUCCESS, UNSPECIFIED_ERROR, describe
from wire.topics import check_topic_filter

RETRY_MS = (250, 30_000)
POLL_S = 0.05
"""How soon the loop notices a signal, a file that is due, or a broker that has stopped sending."""
STALL_S = 5.0
"""A broker that sends as many messages as before within this time, and then stops, waits for acknowledgements."""
LEAVE_S = 10.0


class LandingFailed(Exception):
    """The last landing file of a lander that was told to stop could not be written. The broker keeps its messages."""


class LanderReplaced(Exception):
    """Another client has connected to the broker under the lander's name, and has its session now."""


def land(
    broker: str,
    landing: Path | str,
    stop: Event,
    *,
    name: str = "lander-1",
    topic_filter: str = "#",
    group: str = "lander",
    roll_s: float = 60.0,
    user: str | None = None,
    password_file: Path | str | None = None,
    ca: Path | str | None = None,
    certificate: Path | str | None = None,
    key: Path | str | None = None,
    metrics_port: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Writes messages from a broker into landing files until `stop` is set, then lands and acknowledges the rest.

    A message is acknowledged only after its landing file and the manifest are on the disk, so a process that is
    killed loses nothing: the broker sends again what was not acknowledged. `land` blocks; set `stop` from a signal
    handler, a timer or another thread. While the broker cannot be reached, or the folder cannot be written, `land`
    tries again until it works.

    broker: the broker's URL, "mqtt://HOST:PORT", or "mqtts://HOST:PORT" with TLS. The port may be left out (1883 or
        8883).
    landing: the folder for landing files, which is made where it does not exist; or the URL of a part of an object
        store, "s3://BUCKET/PREFIX".
    stop: ends `land` once it is set.
    name: the lander's name: its client identifier, and the beginning of its files' names. Letters, digits, ".", "_"
        and "-" only. One process at a time lands under a name.
    topic_filter: the MQTT topic filter to subscribe to.
    group: the share group. The landers of a group divide the messages among them.
    roll_s: the longest time in seconds that a message waits for its landing file, above 0.
    user, password_file: the login; the file has the password on one line, and other users can neither read nor change
        it.
    ca: the authorities by which the broker is known, in PEM; without it those of the system.
    certificate, key: the lander's own certificate and its key, in PEM.
    metrics_port: where `/healthz` and `/metrics` are on the loopback address, 0 for a free port; None: nowhere.
    say: is called with one line of text for each event, for people.

    Raises ValueError for a bad argument, LanderRunning when another process lands under this name in this folder,
    LanderReplaced when another client connects to the broker under this name, OSError when the folder or the port
    cannot be used at the start, and LandingFailed when the last file cannot be written.
    """
    server = parse_server(broker, ("mqtt", "mqtts"))
    credentials = Credentials(
        user, *(None if file is None else Path(file) for file in (password_file, ca, certificate, key))
    )
    try:
        credentials.check(server)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    if not LANDER_NAME.fullmatch(name):
        raise ValueError(f"name {name!r}: letters, digits, '.', '_' and '-' only, it becomes a file name")
    try:
        check_topic_filter(f"$share/{group}/{topic_filter}")
    except WireError as error:
        raise ValueError(str(error)) from None
    if not roll_s > 0:
        raise ValueError(f"roll_s is {roll_s}, expected a number of seconds above 0")
    folder = LandingFolder(open_storage(landing), name, secrets.randbits(32))
    try:
        for leftover in folder.leftovers:
            say(f"removed {leftover}, left by a killed lander and never acknowledged")
        lander = Lander(server, credentials, folder, topic_filter, group, roll_s, say)
        with _health(metrics_port, lander, say):
            try:
                lander.run(stop)
            except OSError as error:
                raise LandingFailed(f"cannot land in {folder.storage}: {error}; the broker keeps the rest") from error
    finally:
        folder.close()


@contextmanager
def _health(port: int | None, lander: "Lander", say: Callable[[str], None]) -> Iterator[None]:
    if port is None:
        yield
        return
    server = HealthServer(port, lander.metrics, lander.problems)
    say(f"/healthz and /metrics are at port {server.port}")
    try:
        yield
    finally:
        server.close()


class Pause:
    """The wait before the next attempt; it grows until one has success."""

    def __init__(self) -> None:
        self._backoff = Backoff(*RETRY_MS)
        self._until = 0.0

    @property
    def left_s(self) -> float:
        """Seconds until the next attempt, 0 if it may begin."""
        return max(0.0, self._until - time.monotonic())

    def begin(self) -> None:
        """There is an attempt: the next one is later."""
        self._until = time.monotonic() + self._backoff.next_wait_ms() / 1000

    def end(self) -> None:
        """An attempt had success."""
        self._until = 0.0
        self._backoff.reset()


class Lander:
    """Lands the messages of `topic_filter` as one member of a share group. `land` describes the arguments."""

    def __init__(
        self,
        server: Server,
        credentials: Credentials,
        folder: LandingFolder,
        topic_filter: str,
        group: str,
        roll_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._server = server
        self._credentials = credentials
        self._folder = folder
        self._subscription = f"$share/{group}/{topic_filter}"
        self._roll_s = roll_s
        self._notices = Notices(say)
        self._held = Held()
        self._rows = MessageRows(folder.lander)
        self._subscriber: Subscriber | None = None
        self._accepted = False
        self._connected = False
        self._had_session = folder.last_number > 0
        self._barriers: dict[int, int] = {}  # packet identifier of a SUBSCRIBE: the file acknowledged before it
        self._notices.expect("connection", f"not connected to {server} yet")
        self.metrics = Metrics()
        self._connecting = Pause()
        self._landing = Pause()
        self._first_at = 0.0
        self._rolled_at = 0.0
        self._last_window = 0

    def run(self, stop: Event) -> None:
        """Runs until `stop` is set, then lands what it holds. Raises OSError when that last landing fails.

        Raises LanderReplaced, once the messages of QoS 0 have landed: the others are in the session.
        """
        try:
            while not stop.is_set():
                if self._subscriber is None:
                    self._connect(stop)
                    continue
                silent = self._exchange(self._subscriber)
                if self._accepted and self._held.rows and self._due(silent):
                    self._try_to_land()
        finally:
            if not self._connected:
                self._held.leave_to_broker()
            try:
                if self._held.rows:
                    self._land()
            finally:
                self._leave()

    def problems(self) -> list[str]:
        """Returns what keeps messages from landing now, a line each; any thread may ask."""
        return self._notices.problems()

    # The connection

    def _connect(self, stop: Event) -> None:
        if stop.wait(self._connecting.left_s):
            return
        self._connecting.begin()
        try:
            self._subscriber = Subscriber(self._server, self._credentials, self._folder.lander, self._subscription)
        except OSError as error:
            self._notices.complain(
                "connection", f"cannot reach {self._server}: {error.strerror or error}; trying again until it answers"
            )
        except ConfigError as error:
            self._notices.complain("connection", f"cannot log in: {error}; trying again")

    def _exchange(self, subscriber: Subscriber) -> bool:
        """Takes what comes within POLL_S, and writes what waits. Returns whether nothing came."""
        silent = True
        try:
            # A lander that cannot land stops reading: so the broker cannot fill its memory. But it reads until the
            # CONNACK, which says whether the broker sends again what is held, and so makes room.
            for packet in subscriber.exchange(not (self._accepted and self._held.full), POLL_S):
                silent = False
                self._take(subscriber, packet)
        except OSError as error:
            self._lose(error.strerror or str(error))
        self._count_held()
        return silent

    def _take(self, subscriber: Subscriber, packet: Packet | Published | Closed) -> None:
        if isinstance(packet, Publish):
            self.metrics.redelivered.inc(packet.dup)
            self._take_message(packet)
        elif isinstance(packet, Published):
            self._hold(Piece(packet.rows, packet.identifiers, packet.packets))
        elif isinstance(packet, Connack) and packet.reason_code == SUCCESS:
            self._accepted = True
            self._resume(packet.session_present)
            subscriber.subscribe()
        elif isinstance(packet, Suback):
            self._take_suback(packet)
        elif isinstance(packet, Disconnect) and packet.reason_code == SESSION_TAKEN_OVER:
            self._lose(describe(packet.reason_code))
            raise LanderReplaced(
                f"another client has connected to {self._server} as {self._folder.lander}; this lander ends, "
                "and the other one gets its messages"
            )
        elif isinstance(packet, Closed):
            self._lose(packet.text)

    def _resume(self, session_present: bool) -> None:
        if session_present:
            self._held.leave_to_broker()
        else:
            self._held.forget_session()
            self._confirm(self._folder.last_number)
            if self._had_session:
                self.metrics.lost_sessions.inc()
                self._notices.say(
                    f"{self._server} has no session of {self._folder.lander} any more: what it kept for this lander is "
                    "lost, and `gaps` shows the messages with identities"
                )
        self._had_session = True

    def _take_suback(self, suback: Suback) -> None:
        if (number := self._barriers.pop(suback.packet_identifier, None)) is not None:
            self._confirm(number)
        elif suback.reason_codes[0] >= UNSPECIFIED_ERROR:
            reason = describe(suback.reason_codes[0])
            text = f"{self._server} refuses {self._subscription}: {reason}; trying again until it accepts"
            self._notices.complain("connection", text)
            self._drop_connection()
        else:
            self._connected = True
            self._notices.settle("connection")
            self.metrics.connected.set(1)
            self.metrics.connections.inc()
            self._notices.say(f"connected to {self._server}, subscribed to {self._subscription}")

    def _confirm(self, number: int) -> None:
        try:
            self._folder.confirm(number)
        except OSError as error:
            self._notices.say_once(f"cannot write to {self._folder.storage}: {error.strerror or error}")

    def _lose(self, reason: str) -> None:
        if self._connected:
            self._notices.complain("connection", f"connection to {self._server} lost: {reason}", is_new=True)
        elif not self._accepted:
            text = f"{self._server} refuses the connection: {reason}; trying again until it accepts"
            self._notices.complain("connection", text)
        self._drop_connection()

    def _drop_connection(self) -> None:
        self.metrics.connected.set(0)
        self._connected = self._accepted = False
        self._barriers.clear()
        if self._subscriber is not None:
            self._subscriber.close()
            self._subscriber = None

    def _leave(self) -> None:
        """Disconnects once the broker has read every acknowledgement: it answers one more SUBSCRIBE after them.

        Messages that are still on their way here would turn an earlier close into a TCP reset, and the broker would
        never read the acknowledgements that were on their way to it.
        """
        if self._connected and self._subscriber is not None:
            self._set_barrier(self._subscriber)
        deadline = time.monotonic() + LEAVE_S
        while self._barriers and self._subscriber is not None and time.monotonic() < deadline:
            self._held.clear()
            self._exchange(self._subscriber)
        self._drop_connection()

    def _set_barrier(self, subscriber: Subscriber) -> None:
        self._barriers[subscriber.subscribe()] = self._folder.last_number

    # The messages

    def _take_message(self, message: Publish) -> None:
        is_batch = message.properties.get(CONTENT_TYPE) == COLUMN_BATCH
        if is_batch and (rows := self._rows.of_batch(message)) is not None:
            self._hold_message(rows, message, np.zeros(rows.num_rows, np.uint16))
            return
        row = self._rows.of_message(message)
        is_own = row.seq == 0
        if is_own and message.dup:
            landed = self._folder.own.find(message.packet_identifier or 0, message.topic, message.payload)
            row = row._replace(epoch=landed[0], seq=landed[1]) if landed else row
        self._hold_message(row, message, [message.packet_identifier or 0] if is_own else [0])

    def _hold_message(self, rows: Row | pa.Table, message: Publish, packets: Sequence[int] | np.ndarray) -> None:
        identifiers = () if message.packet_identifier is None else (message.packet_identifier,)
        self._hold(Piece(rows, identifiers, packets))

    def _hold(self, piece: Piece) -> None:
        piece = piece.without_receipts()
        if not self._held.rows:
            if not piece.size and self._subscriber is not None:
                self._subscriber.acknowledge(list(piece.identifiers))
                return
            self._first_at = time.monotonic()
        self._held.add(piece)

    # The landing

    def _due(self, silent: bool) -> bool:
        if self._landing.left_s:
            return False
        now = time.monotonic()
        return self._held.full or now - self._first_at >= self._roll_s or (silent and self._broker_waits(now))

    def _broker_waits(self, now: float) -> bool:
        """Whether the broker's window is smaller than ours and full: it sends nothing more until we acknowledge."""
        window = len(self._held.unacknowledged)
        if window == 0 or window != self._last_window or now - self._rolled_at > STALL_S:
            return False
        text = f"{self._server} sends at most {window} messages ahead of their acknowledgement: files stay small"
        self._notices.say_once(text)
        return True

    def _try_to_land(self) -> None:
        try:
            self._land()
        except OSError as error:
            self._landing.begin()
            self.metrics.failures.inc()
            self._notices.complain(
                "landing",
                f"cannot land in {self._folder.storage}: {error.strerror or error}; "
                f"{self._held.rows} messages stay unacknowledged until it works",
            )

    def _land(self) -> None:
        packets = self._held.packets()
        try:
            manifest = self._folder.land([piece.rows for piece in self._held.pieces], packets)
        except SyncFailed as error:
            self._held.replace_rows(error.rows)
            raise
        if self._subscriber is not None:
            self._subscriber.acknowledge(self._held.unacknowledged)
            if packets.any():
                self._set_barrier(self._subscriber)
        for remark in self._rows.remarks.take():
            self._notices.say(remark)
        self._notices.say(f"landed {manifest.file}: {manifest.rows} messages, {manifest.bytes} bytes")
        self._last_window = len(self._held.unacknowledged)
        self._rolled_at = time.monotonic()
        self._held.clear()
        self._count_landed(manifest)
        self._connecting.end()
        self._landing.end()

    def _count_held(self) -> None:
        self.metrics.held_messages.set(self._held.rows)
        self.metrics.held_bytes.set(self._held.memory)

    def _count_landed(self, manifest: Manifest) -> None:
        self._notices.settle("landing", is_new=False)
        self.metrics.files.inc()
        self.metrics.messages.inc(manifest.rows)
        self.metrics.bytes.inc(manifest.bytes)
        self.metrics.last_landed.set_to_current_time()
        self._count_held()
