"""An MQTT connection whose application reads and writes the most frequent packets itself, many at once.

It means the same as `ServerConnection` or `ClientConnection`: a step that takes many packets takes all or none of them,
and where it takes none they go through `receive_data` one by one, which also says what is wrong with them.

Acknowledgements of success have four bytes each, in both versions of MQTT.
"""

import enum
import sys
from array import array
from struct import pack
from typing import NamedTuple, Protocol

from wire.codec.publish import Publish
from wire.connection import RECEIVE_MAXIMUM_DEFAULT, Connection
from wire.connection.client import ClientConnection
from wire.connection.server import ServerConnection
from wire.connection.states import (
    AWAIT_CONNACK,
    AWAIT_PUBACK,
    AWAIT_PUBCOMP,
    AWAIT_PUBREC,
    AWAIT_PUBREL,
    CONNECTED,
    DONE,
    INCOMING,
    OUTGOING,
    STORE_QOS_1,
    STORE_QOS_2,
)
from wire.connection.windows import NO_PLACE, ReceiveWindow, SendWindow
from wire.packet_types import PUBACK, PUBCOMP, PUBREC, PUBREL
from wire.properties import MAXIMUM_QOS, TOPIC_ALIAS
from wire.reasons import SUCCESS, UNSPECIFIED_ERROR

LOOKS = 4  # at the window in one retry interval
AWAITED = (AWAIT_PUBACK, AWAIT_PUBREC, AWAIT_PUBCOMP)  # states in which it is the peer's turn
EXPECTED = AWAIT_PUBREC | NO_PLACE  # a message of an earlier connection that is to be sent again
ANSWER_SIZE = 4  # of an acknowledgement without properties and reason code
ACKNOWLEDGEMENTS = {PUBACK << 4: PUBACK, PUBREC << 4: PUBREC, PUBREL << 4 | 2: PUBREL, PUBCOMP << 4: PUBCOMP}
"""The first bytes of acknowledgements, with their packet types."""
FIRST_BYTE_OF = {packet_type: first_byte for first_byte, packet_type in ACKNOWLEDGEMENTS.items()}
STEP_OF_OUTGOING, STEP_OF_INCOMING = (
    {step & 15: (step >> 4, after) for step, after in table.items() if after != step >> 4}
    for table in (OUTGOING, INCOMING)
)
"""The states of a message before and after each packet, by the packet's type; a repeated packet is none of these."""


class Acknowledgements(NamedTuple):
    """Acknowledgements of success of one type, from where the first began to `end`."""

    end: int
    packet_type: int
    identifiers: list[int]


class BulkConnection(Connection):
    """Base of both ends, with `take_…` for packets that did not go through `receive_data`, and `…_all` to send many.

    `packets_sent` counts the packets of all kinds that were sent; the application that reads it sets it back.
    """

    _send_window: "BulkSendWindow"
    _receive_window: "BulkReceiveWindow"

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self._receive_window = BulkReceiveWindow(self.receive_maximum)
        self._send_window = BulkSendWindow(0, options.get("first_identifier", 1))
        self._is_drained = True
        self.packets_sent = 0

    @property
    def takes_bulk(self) -> bool:
        """Whether packets may be taken past `receive_data`: connected, and no earlier bytes wait to be read."""
        return self._is_drained and self.state == CONNECTED and self.maximum_packet_size_peer >= ANSWER_SIZE

    def receive_data(self, data, now_ms: int) -> None:
        self._is_drained = False
        super().receive_data(data, now_ms)

    def next_event(self):
        event = super().next_event()
        self._is_drained = event is None and self._ready_to_read()
        return event

    def note_received(self, now_ms: int) -> None:
        """Packets came past `receive_data`, for the keep alive [MQTT-3.1.2-22]."""
        raise NotImplementedError

    def note_waiting(self, size: int, now_ms: int) -> None:
        """``size`` bytes came of a packet that the application keeps until it is whole."""
        raise NotImplementedError

    @property
    def gives_aliases(self) -> bool:
        """Whether some topics may have aliases."""
        return bool(self._aliases)

    def aliases_of(self, topics: list) -> list:
        """The aliases in place of topic names: 0 where the name is written out, None where `publish` gives one.

        Only where the connection `gives_aliases`.
        """
        return self._aliases[1].of_all(topics)

    def take_publishes(self, identifiers: list, qos: int) -> bool:
        """Well-formed PUBLISHes of one QoS came, none with DUP or RETAIN; answer them with `answer_all`."""
        return self._receive_window.open_all(identifiers, qos)

    def take_acknowledgements(self, packet_type: int, identifiers: list) -> bool:
        """PUBACKs, PUBRECs, PUBRELs or PUBCOMPs came, all of success.

        Answer PUBRECs with `pubrel_all`, and PUBRELs with `answer_all`.
        """
        if packet_type == PUBREL:
            return self._receive_window.release_all(identifiers)
        return self._send_window.take_all(identifiers, packet_type)

    def has_unanswered(self) -> bool:
        """Whether the peer has packets to answer."""
        return self._send_window.has_any()

    def identifiers_in_use(self) -> list:
        """The packet identifiers of messages to the peer, those of `expect_pubrecs` too."""
        return self._send_window.in_use()

    def expect_pubrecs(self, identifiers: list) -> None:
        """These QoS 2 messages of the session are to be sent again, and the peer may answer them before that.

        Ignores packet identifiers that are in use.
        """
        self._send_window.expect_all(identifiers)

    def is_expected(self, identifier: int) -> bool:
        """Whether the peer has not answered a message of ``expect_pubrecs`` yet."""
        return self._send_window.state(identifier) == AWAIT_PUBREC

    def pubrel_all(self, identifiers: list) -> None:
        """Sends PUBRELs once the PUBRECs are noted durably; see `pubrel`."""
        self._check_may_send(PUBREL)
        for identifier in identifiers:
            self._send_window.free(identifier)
        self._append(encode_acknowledgements(PUBREL, identifiers), len(identifiers))

    def publish_all(self, identifiers: list, encoded: bytes, longest: int, qos: int = 1) -> bool:
        """Sends PUBLISHes of one QoS that the application has encoded, the longest of `longest` bytes.

        False, and nothing is sent, where `publish` has to check each.
        """
        if longest > self.maximum_packet_size_peer or not self.connected or qos > self.maximum_qos_peer:
            return False
        if not self._send_window.acquire_all(identifiers, AWAIT_PUBACK if qos == 1 else AWAIT_PUBREC):
            return False
        self._append(encoded, len(identifiers))
        return True

    def answer_all(self, packet_type: int, identifiers: list, reason_code: int = SUCCESS) -> None:
        """Sends PUBACKs, PUBRECs or PUBCOMPs, unless they exceed the peer's Maximum Packet Size.

        The reason code is below 0x80, and of MQTT 5.
        """
        self._check_may_send(packet_type)
        self._receive_window.acknowledge_all(identifiers, packet_type)
        encoded = encode_acknowledgements(packet_type, identifiers, reason_code)
        if self.maximum_packet_size_peer >= len(encoded) // len(identifiers):
            self._append(encoded, len(identifiers))

    def _append(self, encoded: bytes, packets: int) -> None:
        self._out.append(encoded)
        self._last_sent_ms = self._now_ms
        self.packets_sent += packets

    def _send(self, packet) -> None:
        super()._send(packet)
        self.packets_sent += 1


class Repeat(enum.Enum):
    """What a QoS 2 PUBLISH is under a packet identifier that may be known: the same message again, another one, or not
    known."""

    KNOWN = "known"
    OTHER = "other"
    UNKNOWN = "unknown"


class Repeats(Protocol):
    """Knows messages of earlier connections.

    ``is_expecting`` says whether any message may be one of them, and ``note_new`` that one is not. ``look_at`` is asked
    about QoS 2 messages one by one.
    """

    is_expecting: bool

    def note_new(self) -> None: ...

    def look_at(self, packet: Publish) -> Repeat: ...


class BulkServerConnection(BulkConnection, ServerConnection):
    """The server's end. ``repeats`` knows messages of earlier connections, None where it is not asked."""

    repeats: Repeats | None = None

    def note_received(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._note_packet()

    def note_waiting(self, size: int, now_ms: int) -> None:
        self._now_ms = now_ms
        self._note_progress(size)

    def take_publishes(self, identifiers: list, qos: int) -> bool:
        if self.repeats is not None and self.repeats.is_expecting:
            if qos == 2:
                return False
            self.repeats.note_new()
        return qos <= self._announced.get(MAXIMUM_QOS, 2) and super().take_publishes(identifiers, qos)

    def _handle_publish(self, packet: Publish) -> Publish | None:
        if self.repeats is not None and packet.packet_identifier is not None:
            if TOPIC_ALIAS in packet.properties:
                self._resolve_alias(packet)
            if packet.qos == 2:
                self._look_at(packet.packet_identifier, self.repeats.look_at(packet))
            elif self.repeats.is_expecting and not packet.dup:
                self.repeats.note_new()
        return super()._handle_publish(packet)

    def _look_at(self, identifier: int, found: Repeat) -> None:
        """The window answers a known message with PUBREC; another one is new [MQTT-4.3.3-12]."""
        if found is Repeat.KNOWN:
            self._receive_window.resume(identifier)
        elif found is Repeat.OTHER:
            self._receive_window.forget(identifier)


class BulkClientConnection(BulkConnection, ClientConnection):
    """The client's end. Nothing is sent again over one connection, over MQTT 3.1.1 neither: if the server does not
    acknowledge a message within `retry_interval_ms`, or up to a quarter later, the connection is Closed. The client may
    resume its session over a new one.

    An application that calls `note_line` excuses a slow line: the interval of a message, and the time for the answer to
    a PINGREQ, begin when the line has taken it. A line that takes nothing is not excused.

    Args:
        retry_interval_ms: 0 for no limit.
        inflight_window: how many messages of QoS 1 and 2 may be unacknowledged, where the server's Receive Maximum is
            larger.
    """

    def __init__(
        self, *args, retry_interval_ms: int = 0, inflight_window: int = RECEIVE_MAXIMUM_DEFAULT, **options
    ) -> None:
        super().__init__(*args, retry_interval_ms=0, **options)
        self._inflight_window = self._inflight_most = inflight_window
        self._look_interval_ms = retry_interval_ms // LOOKS
        self._next_look_ms: int | None = None
        self._written = self._taken = 0  # bytes
        self._taken_at_look = 0
        self._ping_behind: int | None = None  # bytes written before the PINGREQ; None: no answer is due
        self._taken_at_ping = 0

    def note_line(self, written: int, taken: int) -> None:
        """Says how many bytes have been written to the line so far, and how many of them the other machine has.

        Call it before `handle_timer`.
        """
        self._written, self._taken = written, max(self._taken, taken)

    def send_singly(self, *, is_on: bool) -> None:
        """Lets one message be unacknowledged from now on, or as many as before. There is a connection."""
        self._send_window.limit = 1 if is_on else self._inflight_most

    def unanswered(self) -> list[int]:
        """Returns the packet identifiers of the messages that were sent and not answered by a PUBACK or PUBREC."""
        return self._send_window.unanswered()

    def next_timer_ms(self) -> int | None:
        timer_ms = super().next_timer_ms()
        if self._next_look_ms is None or self.state != CONNECTED:
            return timer_ms
        return self._next_look_ms if timer_ms is None else min(timer_ms, self._next_look_ms)

    def handle_timer(self, now_ms: int) -> None:
        self._excuse_ping(now_ms)
        super().handle_timer(now_ms)
        if self._ping_behind is None and self._deadline_ms is not None:
            self._ping_behind, self._taken_at_ping = self._written, self._taken
        if self._next_look_ms is None or self.state != CONNECTED or now_ms < self._next_look_ms:
            return
        self._next_look_ms = now_ms + self._look_interval_ms
        taken, before, self._taken_at_look = self._taken, self._taken_at_look, self._taken
        unanswered = self._send_window.find_unanswered(LOOKS, self._written, taken if taken > before else self._written)
        if unanswered is not None:
            interval_s = LOOKS * self._look_interval_ms / 1000
            text = f"no acknowledgement of packet identifier {unanswered} in {interval_s:g} s [MQTT-4.4.0-1]"
            self._close(UNSPECIFIED_ERROR, text)

    def _excuse_ping(self, now_ms: int) -> None:
        """Gives the answer to a PINGREQ more time if the line is still taking what was written before it."""
        if self.state != CONNECTED or self._deadline_ms is None:
            self._ping_behind = None
        elif self._ping_behind is None or now_ms < self._deadline_ms:
            return
        elif self._taken_at_ping < self._taken <= self._ping_behind:
            self._taken_at_ping = self._taken
            self._deadline_ms = now_ms + 500 * self.keep_alive_s

    def note_received(self, now_ms: int) -> None:
        self._now_ms = self._last_received_ms = now_ms
        if self.state != AWAIT_CONNACK:
            self._deadline_ms = None

    def note_waiting(self, size: int, now_ms: int) -> None:
        self.note_received(now_ms)

    def _handle_connack(self, packet) -> None:
        super()._handle_connack(packet)
        if not packet.session_present:  # the server knows none of them, so no PUBREC can be about them
            self._send_window.forget_expected()
        self._inflight_most = min(self._send_window.limit, self._inflight_window)
        self._send_window.limit = self._inflight_most
        if self._look_interval_ms:
            self._next_look_ms = self._now_ms + self._look_interval_ms


class BulkReceiveWindow(ReceiveWindow):
    """A ReceiveWindow that takes many packet identifiers at once."""

    def open_all(self, identifiers: list, qos: int) -> bool:
        """Takes PUBLISHes; False, and nothing is taken, unless all are new and there is room."""
        states = self._states
        opened = dict.fromkeys(identifiers, STORE_QOS_1 if qos == 1 else STORE_QOS_2)
        if len(opened) != len(identifiers) or len(self) + len(opened) > self.limit:
            return False
        if not states.keys().isdisjoint(opened):
            return False
        states.update(opened)
        return True

    def forget(self, identifier: int) -> None:
        """A message that waits for its PUBREL was given up: its packet identifier stands for a new one."""
        if self.state(identifier) == AWAIT_PUBREL and self._states.pop(identifier) & NO_PLACE:
            self._resumed -= 1

    def release_all(self, identifiers: list) -> bool:
        """Takes PUBRELs; False, and nothing is taken, unless all messages wait for theirs."""
        states = self._states
        before, after = STEP_OF_INCOMING[PUBREL]
        for identifier in identifiers:
            if states.get(identifier, DONE) & ~NO_PLACE != before:
                return False
        if len(set(identifiers)) != len(identifiers):
            return False
        for identifier in identifiers:
            states[identifier] = after | states[identifier] & NO_PLACE
        return True

    def acknowledge_all(self, identifiers: list, packet_type: int) -> None:
        """Our PUBACKs, PUBRECs or PUBCOMPs of messages that wait for that; KeyError for one that there is not."""
        states = self._states
        _, after = STEP_OF_INCOMING[packet_type]
        if after != DONE:
            for identifier in identifiers:
                states[identifier] = after | states[identifier] & NO_PLACE
        elif self._resumed:
            for identifier in identifiers:
                if states.pop(identifier) & NO_PLACE:
                    self._resumed -= 1
        else:
            for identifier in identifiers:
                del states[identifier]


class BulkSendWindow(SendWindow):
    """A SendWindow that takes many packet identifiers at once."""

    def __init__(self, limit: int, first: int = 1) -> None:
        super().__init__(limit, first)
        self._looks: dict = {}  # by packet identifier: the state at the latest look, how many looks found it so, …
        # … and how many bytes were written by the first of them

    def find_unanswered(self, looks: int, written: int, taken: int) -> int | None:
        """Looks at the messages that wait for the peer; returns one that has waited for the same answer for ``looks``
        looks, None if there is none. The looks are to be made at a steady pace.

        Args:
            looks: how many.
            written: bytes that were written to the line so far.
            taken: how many of them the line has taken. A look at a message that it has not taken does not count.
        """
        before, self._looks = self._looks, {}
        for identifier, state in self._states.items():
            if state & ~NO_PLACE in AWAITED and state != EXPECTED:
                seen, count, behind = before.get(identifier, (state, 0, written))
                if seen != state:
                    count, behind = 0, written
                count += behind <= taken
                if count > looks:
                    return identifier
                self._looks[identifier] = state, count, behind
        return None

    def has_any(self) -> bool:
        """Whether any packet identifier is in use."""
        return bool(self._states)

    def in_use(self) -> list[int]:
        """Returns the packet identifiers in use."""
        return list(self._states)

    def unanswered(self) -> list[int]:
        """Returns the packet identifiers of the messages that were sent and wait for their PUBACK or PUBREC."""
        return [one for one, state in self._states.items() if state in (AWAIT_PUBACK, AWAIT_PUBREC)]

    def expect_all(self, identifiers: list) -> None:
        """Adds messages whose PUBRECs may come before they are sent again; they do not count towards the limit."""
        for identifier in identifiers:
            self._states.setdefault(identifier, EXPECTED)

    def forget_expected(self) -> None:
        """Takes out the messages of `expect_all` that have not been sent."""
        for identifier in [one for one, state in self._states.items() if state == EXPECTED]:
            del self._states[identifier]

    def free(self, packet_identifier: int) -> None:
        if self._states.get(packet_identifier) == EXPECTED:
            del self._states[packet_identifier]
        super().free(packet_identifier)

    def acquire(self, packet_identifier: int | None = None, qos: int = 1) -> int:
        if self._states.get(packet_identifier) == EXPECTED and self.quota:
            del self._states[packet_identifier]
        packet_identifier = super().acquire(packet_identifier, qos)
        self._looks.pop(packet_identifier, None)
        return packet_identifier

    def acquire_all(self, identifiers: list, state: int) -> bool:
        """Takes a place for each of these messages, in this state; False, and none is taken, unless all have room."""
        states = self._states
        acquired = dict.fromkeys(identifiers, state)
        if len(acquired) != len(identifiers) or len(acquired) > self.quota or not states.keys().isdisjoint(acquired):
            return False
        states.update(acquired)
        self._places_taken += len(acquired)
        if not self._looks.keys().isdisjoint(acquired):
            for identifier in identifiers:
                self._looks.pop(identifier, None)
        return True

    def take_all(self, identifiers: list, packet_type: int) -> bool:
        """Takes PUBACKs, PUBRECs or PUBCOMPs; False, and nothing is taken, unless all messages wait for theirs."""
        states = self._states
        before, after = STEP_OF_OUTGOING[packet_type]
        if list(map(states.get, identifiers)).count(before) != len(identifiers):
            return False
        if len(set(identifiers)) != len(identifiers):
            return False
        if after == DONE:
            for identifier in identifiers:
                del states[identifier]
            self._places_taken -= len(identifiers)
        else:
            states.update(dict.fromkeys(identifiers, after))
        return True


def cut_acknowledgements(buffer: bytes, start: int) -> Acknowledgements:
    """Cuts all acknowledgements of one type and of success that begin at a place, up to the first other packet.

    There are no identifiers where the first one is longer, cut off or has packet identifier 0.
    """
    whole = start + (len(buffer) - start) // ANSWER_SIZE * ANSWER_SIZE
    count = 0
    for index in (0, 1):
        column = buffer[start + index : whole : ANSWER_SIZE]
        wanted = b"\x02" if index else buffer[start : start + 1]
        alike = len(column) - len(column.lstrip(wanted))
        count = min(count, alike) if index else alike
    numbers = array("H", buffer[start : start + count * ANSWER_SIZE])
    if sys.byteorder == "little":
        numbers.byteswap()
    identifiers = numbers[1::2].tolist()
    if 0 in identifiers:
        del identifiers[identifiers.index(0) :]
    return Acknowledgements(start + len(identifiers) * ANSWER_SIZE, ACKNOWLEDGEMENTS[buffer[start]], identifiers)


def encode_acknowledgements(packet_type: int, identifiers: list[int], reason_code: int = SUCCESS) -> bytes:
    """Returns acknowledgements, one behind the other; an acknowledgement of success goes without its reason code."""
    if len(identifiers) == 1 and reason_code == SUCCESS:  # as for each message of a client that waits for its answer
        return pack(">BBH", FIRST_BYTE_OF[packet_type], 2, identifiers[0])
    one = (2, 0, 0) if reason_code == SUCCESS else (3, 0, 0, reason_code)
    encoded = bytearray((FIRST_BYTE_OF[packet_type],) + one) * len(identifiers)
    numbers = pack(f">{len(identifiers)}H", *identifiers)
    encoded[2 :: 1 + len(one)] = numbers[0::2]
    encoded[3 :: 1 + len(one)] = numbers[1::2]
    return bytes(encoded)
