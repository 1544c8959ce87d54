"""A server's connection whose application reads the most frequent packets itself, many at once.

It means the same as `ServerConnection`: a step that takes many packets takes all or none of them, and where it takes
none they go through `receive_data` one by one, which also says what is wrong with them.
"""

from wire.packet_types import PUBACK, PUBCOMP, PUBREC, PUBREL
from wire.properties import MAXIMUM_QOS, TOPIC_ALIAS_MAXIMUM
from wire.server import ServerConnection
from wire.states import (
    AWAIT_PUBACK,
    AWAIT_PUBCOMP,
    AWAIT_PUBREC,
    AWAIT_PUBREL,
    AWAIT_STORE,
    CONNECTED,
    RELEASE,
    STORE_QOS_1,
    STORE_QOS_2,
)
from wire.windows import _NO_PLACE, ReceiveWindow, SendWindow

ANSWER_SIZE = 4  # of an acknowledgement without properties and reason code


class BulkServerConnection(ServerConnection):
    """A ServerConnection with `take_…` for packets that did not go through it, and `answer_all` for all of them.

    `packets_sent` counts them, until who reads it sets it back.
    """

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self._receive_window: BulkReceiveWindow = BulkReceiveWindow(self.receive_maximum)
        self._send_window: BulkSendWindow = BulkSendWindow(0)
        self._is_drained = True
        self.packets_sent = 0

    @property
    def takes_bulk(self) -> bool:
        """Whether packets may be taken past `receive_data`: connected, and nothing that came before waits here."""
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
        self._now_ms = now_ms
        self._note_packet()

    def note_waiting(self, size: int, now_ms: int) -> None:
        """So many bytes came of a packet that the application keeps until it is whole."""
        self._now_ms = now_ms
        self._note_progress(size)

    def take_publishes(self, identifiers: list, qos: int) -> bool:
        """Well-formed PUBLISHes of one QoS came, none with DUP or RETAIN; answer them with `answer_all`."""
        return qos <= self._announced.get(MAXIMUM_QOS, 2) and self._receive_window.open_all(identifiers, qos)

    def take_pubrels(self, identifiers: list) -> bool:
        """PUBRELs came, all of success."""
        return self._receive_window.release_all(identifiers)

    def take_pubacks(self, identifiers: list) -> bool:
        """PUBACKs came, all of success, for messages of ours."""
        return self._send_window.end_all(identifiers, AWAIT_PUBACK)

    def take_pubrecs(self, identifiers: list) -> bool:
        """PUBRECs came, all of success, for messages of ours; go on with `pubrel_all`."""
        return self._send_window.receive_all(identifiers)

    def take_pubcomps(self, identifiers: list) -> bool:
        """PUBCOMPs came, all of success, for messages of ours."""
        return self._send_window.end_all(identifiers, AWAIT_PUBCOMP)

    def pubrel_all(self, identifiers: list, encoded: bytes) -> None:
        """Sends PUBRELs, which the application has encoded, once the PUBRECs are noted durably; see `pubrel`."""
        self._check_may_send(PUBREL)
        for identifier in identifiers:
            self._send_window.free(identifier)
        self._append(encoded, len(identifiers))

    def publish_all(self, identifiers: list, encoded: bytes, longest: int, qos: int = 1) -> bool:
        """Sends PUBLISHes of one QoS that the application has encoded, the longest of `longest` bytes.

        False, and nothing is sent, where `publish` has to look at each.
        """
        if longest > self.maximum_packet_size_peer or not self.connected or self._gives_aliases():
            return False
        if not self._send_window.acquire_all(identifiers, AWAIT_PUBACK if qos == 1 else AWAIT_PUBREC):
            return False
        self._append(encoded, len(identifiers))
        return True

    def _gives_aliases(self) -> bool:
        return self.connect_packet is None or self.connect_packet.properties.get(TOPIC_ALIAS_MAXIMUM, 0) > 0

    def answer_all(self, packet_type: int, identifiers: list, encoded: bytes) -> None:
        """Sends PUBACKs, PUBRECs or PUBCOMPs of success, which the application has encoded."""
        self._check_may_send(packet_type)
        self._receive_window.acknowledge_all(identifiers, packet_type)
        self._append(encoded, len(identifiers))

    def _append(self, encoded: bytes, packets: int) -> None:
        self._out.append(encoded)
        self._last_sent_ms = self._now_ms
        self.packets_sent += packets

    def _send(self, packet) -> None:
        super()._send(packet)
        self.packets_sent += 1


class BulkReceiveWindow(ReceiveWindow):
    """The same, many identifiers at once."""

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

    def release_all(self, identifiers: list) -> bool:
        """Takes PUBRELs; False, and nothing is taken, unless all messages wait for theirs."""
        states = self._states
        for identifier in identifiers:
            if states.get(identifier, 0) & ~_NO_PLACE != AWAIT_PUBREL:
                return False
        if len(set(identifiers)) != len(identifiers):
            return False
        for identifier in identifiers:
            states[identifier] = RELEASE | states[identifier] & _NO_PLACE
        return True

    def acknowledge_all(self, identifiers: list, packet_type: int) -> None:
        """Our PUBACKs, PUBRECs or PUBCOMPs of messages that wait for that; KeyError for one that there is not."""
        states = self._states
        if packet_type == PUBREC:
            for identifier in identifiers:
                states[identifier] = AWAIT_PUBREL | states[identifier] & _NO_PLACE
        elif packet_type == PUBACK:
            for identifier in identifiers:
                del states[identifier]
        elif packet_type == PUBCOMP:
            for identifier in identifiers:
                if states.pop(identifier) & _NO_PLACE:
                    self._resumed -= 1


class BulkSendWindow(SendWindow):
    """The same, many identifiers at once."""

    def acquire_all(self, identifiers: list, state: int) -> bool:
        """Takes a place for each of these messages, in this state; False, and none is taken, unless all have room."""
        states = self._states
        acquired = dict.fromkeys(identifiers, state)
        if len(acquired) != len(identifiers) or len(acquired) > self.quota or not states.keys().isdisjoint(acquired):
            return False
        states.update(acquired)
        self._places_taken += len(acquired)
        return True

    def receive_all(self, identifiers: list) -> bool:
        """Takes PUBRECs; False, and nothing is taken, unless all messages wait for theirs."""
        if not self._are_all(identifiers, AWAIT_PUBREC):
            return False
        self._states.update(dict.fromkeys(identifiers, AWAIT_STORE))
        return True

    def end_all(self, identifiers: list, state: int) -> bool:
        """Takes the last acknowledgements of messages; False, and nothing is taken, unless all wait for it."""
        if not self._are_all(identifiers, state):
            return False
        states = self._states
        for identifier in identifiers:
            del states[identifier]
        self._places_taken -= len(identifiers)
        return True

    def _are_all(self, identifiers: list, state: int) -> bool:
        """Whether all are in a state, with a place, and each is there once."""
        states = self._states
        for identifier in identifiers:
            if states.get(identifier) != state:
                return False
        return len(set(identifiers)) == len(identifiers)
