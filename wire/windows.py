"""Who may have how many QoS 1 and 2 messages on the way (section 4.9): one machine for every role.

Both windows live as long as one network connection. Packet identifiers of the two directions are independent.
"""

from wire.errors import LocalProtocolError, RemoteProtocolError
from wire.reasons import PROTOCOL_ERROR, RECEIVE_MAXIMUM_EXCEEDED

IDENTIFIER_MAX = 65_535


class SendWindow:
    """The packet identifiers we have in use; at most `limit`, the peer's Receive Maximum, belong to messages."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._counted: dict = {}  # packet identifier: whether it takes a place under the limit
        self._places_taken = 0
        self._last = 0

    @property
    def quota(self) -> int:
        """Messages that may be sent now."""
        return self.limit - self._places_taken

    def __len__(self) -> int:
        return self._places_taken

    def __contains__(self, packet_identifier: int) -> bool:
        return packet_identifier in self._counted

    def acquire(self, packet_identifier: int | None = None) -> int:
        """Takes a place for a message under this or the next free identifier, which is returned.

        Raises LocalProtocolError when the window is full [MQTT-3.3.4-9] or the identifier is in use [MQTT-2.2.1-3].
        """
        if self._places_taken >= self.limit:
            raise LocalProtocolError(f"{self.limit} messages are on the way, the peer's Receive Maximum")
        if packet_identifier is None:
            packet_identifier = self._next_free()
        elif packet_identifier in self._counted:
            raise LocalProtocolError(f"packet identifier {packet_identifier} is in use [MQTT-2.2.1-3]")
        elif not 0 < packet_identifier <= IDENTIFIER_MAX:
            raise LocalProtocolError(f"packet identifier {packet_identifier} is not within 1 and 65535")
        self._counted[packet_identifier] = True
        self._places_taken += 1
        return packet_identifier

    def reserve(self) -> int:
        """An identifier for a SUBSCRIBE or UNSUBSCRIBE, which takes no place under the limit."""
        packet_identifier = self._next_free()
        self._counted[packet_identifier] = False
        return packet_identifier

    def release(self, packet_identifier: int) -> bool:
        """Gives an identifier back; False when it was not in use."""
        counted = self._counted.pop(packet_identifier, None)
        if counted is None:
            return False
        if counted:
            self._places_taken -= 1
        return True

    def _next_free(self) -> int:
        if len(self._counted) >= IDENTIFIER_MAX:
            raise LocalProtocolError("all packet identifiers are in use")
        candidate = self._last
        while True:
            candidate = candidate % IDENTIFIER_MAX + 1
            if candidate not in self._counted:
                self._last = candidate
                return candidate


class ReceiveWindow:
    """The messages a peer has sent that we have not acknowledged; at most `limit`, our own Receive Maximum."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._open: set = set()

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, packet_identifier: int) -> bool:
        return packet_identifier in self._open

    def open(self, packet_identifier: int) -> None:
        """Raises RemoteProtocolError: 0x93 beyond the limit [MQTT-3.3.4-7], 0x82 for an identifier still in use."""
        if packet_identifier in self._open:
            text = f"packet identifier {packet_identifier} comes again before its acknowledgement [MQTT-2.2.1-3]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)
        if len(self._open) >= self.limit:
            text = f"more than {self.limit} unacknowledged messages, our Receive Maximum [MQTT-3.3.4-7]"
            raise RemoteProtocolError(RECEIVE_MAXIMUM_EXCEEDED, text)
        self._open.add(packet_identifier)

    def close(self, packet_identifier: int) -> None:
        """Raises LocalProtocolError when there is nothing to acknowledge."""
        if packet_identifier not in self._open:
            raise LocalProtocolError(f"no message with packet identifier {packet_identifier} waits for us")
        self._open.remove(packet_identifier)
