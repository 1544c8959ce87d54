"""The QoS 1 and 2 messages of one connection that are not acknowledged yet, and their limit (section 4.9).

SendWindow has our messages, ReceiveWindow has the peer's. Client and server use the same two classes. A window lives as
long as its network connection. The packet identifiers of the two directions are independent. The states are listed in
`wire.connection.states`.
"""

from wire.connection.states import (
    AWAIT_ANSWER,
    AWAIT_PUBACK,
    AWAIT_PUBCOMP,
    AWAIT_PUBREC,
    AWAIT_PUBREL,
    AWAIT_STORE,
    DONE,
    INCOMING,
    OUTGOING,
    STORE_QOS_1,
    STORE_QOS_2,
)
from wire.errors import LocalProtocolError, RemoteProtocolError
from wire.packet_types import PUBACK, PUBREC, PUBREL
from wire.reasons import PROTOCOL_ERROR, RECEIVE_MAXIMUM_EXCEEDED

IDENTIFIER_MAX = 65_535

NO_PLACE = 8  # or'ed to the state of a packet identifier that does not count towards the limit


class SendWindow:
    """The packet identifiers that our side uses; at most `limit`, the peer's Receive Maximum, belong to messages.

    The window chooses packet identifiers in ascending order and begins with `first`.
    """

    def __init__(self, limit: int, first: int = 1) -> None:
        self.limit = limit
        self._states: dict = {}  # packet identifier: state, perhaps with NO_PLACE
        self._places_taken = 0
        self._last = first - 1

    @property
    def quota(self) -> int:
        """How many messages may be sent now."""
        return self.limit - self._places_taken

    def __len__(self) -> int:
        return self._places_taken

    def __contains__(self, packet_identifier: int) -> bool:
        return packet_identifier in self._states

    def state(self, packet_identifier: int | None) -> int:
        """Returns the state of the message with this packet identifier; DONE if it is not in use."""
        return self._states.get(packet_identifier, DONE) & ~NO_PLACE

    def acquire(self, packet_identifier: int | None = None, qos: int = 1) -> int:
        """Adds a message with this packet identifier, or with the next free one; returns the packet identifier.

        Raises LocalProtocolError if the window is full [MQTT-3.3.4-9] or the identifier is in use [MQTT-2.2.1-3].
        """
        if self._places_taken >= self.limit:
            raise LocalProtocolError(f"{self.limit} messages are on the way, the peer's Receive Maximum")
        if packet_identifier is None:
            packet_identifier = self._next_free()
        elif packet_identifier in self._states:
            raise LocalProtocolError(f"packet identifier {packet_identifier} is in use [MQTT-2.2.1-3]")
        elif not 0 < packet_identifier <= IDENTIFIER_MAX:
            raise LocalProtocolError(f"packet identifier {packet_identifier} is not within 1 and 65535")
        self._states[packet_identifier] = AWAIT_PUBACK if qos == 1 else AWAIT_PUBREC
        self._places_taken += 1
        return packet_identifier

    def reserve(self) -> int:
        """Returns a packet identifier for a SUBSCRIBE or UNSUBSCRIBE, which does not count towards the limit."""
        packet_identifier = self._next_free()
        self._states[packet_identifier] = AWAIT_ANSWER | NO_PLACE
        return packet_identifier

    def acknowledge(self, packet_identifier: int, packet_type: int, refused: bool = False) -> int:
        """Handles a received PUBACK, PUBREC or PUBCOMP; returns the message's state before it, DONE if unknown.

        Raises RemoteProtocolError(0x82) if the message's flow does not allow this packet now.
        """
        state = self.state(packet_identifier)
        if state == DONE:
            return DONE
        following = OUTGOING.get(state << 4 | packet_type)
        if following is None or (refused and state not in (AWAIT_PUBACK, AWAIT_PUBREC)):
            text = f"packet type {packet_type} does not answer message {packet_identifier} now [MQTT-4.3.3-1]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)
        if refused or following == DONE:
            self.release(packet_identifier)
        else:
            self._states[packet_identifier] = following | self._states[packet_identifier] & NO_PLACE
        return state

    def free(self, packet_identifier: int) -> None:
        """Records our PUBREL for a message whose PUBREC came on this connection or an earlier one of the session.

        A message of an earlier connection does not count towards the limit, because each connection starts with a
        full quota. Raises LocalProtocolError if the PUBREC has not come.
        """
        state = self.state(packet_identifier)
        if state not in (DONE, AWAIT_STORE, AWAIT_PUBCOMP):
            raise LocalProtocolError(f"no PUBREC has come for packet identifier {packet_identifier} [MQTT-4.3.3-4]")
        place = self._states.get(packet_identifier, NO_PLACE) & NO_PLACE
        self._states[packet_identifier] = AWAIT_PUBCOMP | place

    def release(self, packet_identifier: int) -> bool:
        """Frees a packet identifier; returns whether it was in use."""
        state = self._states.pop(packet_identifier, None)
        if state is None:
            return False
        if not state & NO_PLACE:
            self._places_taken -= 1
        return True

    def _next_free(self) -> int:
        if len(self._states) >= IDENTIFIER_MAX:
            raise LocalProtocolError("all packet identifiers are in use")
        candidate = self._last
        while True:
            candidate = candidate % IDENTIFIER_MAX + 1
            if candidate not in self._states:
                self._last = candidate
                return candidate


class ReceiveWindow:
    """The peer's messages that our side has not acknowledged; at most `limit`, our own Receive Maximum."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._states: dict = {}
        self._resumed = 0  # how many came over an earlier connection; they do not count towards the limit

    def __len__(self) -> int:
        return len(self._states) - self._resumed

    def __contains__(self, packet_identifier: int) -> bool:
        return packet_identifier in self._states

    def resume(self, packet_identifier: int) -> None:
        """Adds a QoS 2 message that an earlier connection received, and whose PUBREL has not come."""
        if packet_identifier not in self._states:
            self._states[packet_identifier] = AWAIT_PUBREL | NO_PLACE
            self._resumed += 1

    def open(self, packet_identifier: int, qos: int = 1, again: bool = False) -> bool:
        """Adds the message of a received PUBLISH; returns False if the PUBLISH only repeats a message of this window.

        A QoS 2 PUBLISH may be repeated [MQTT-4.3.3-10]. A QoS 1 PUBLISH may be repeated if `again` is true, that is
        over MQTT 3.1.1 and with DUP.

        Raises RemoteProtocolError: 0x93 beyond the limit [MQTT-3.3.4-7], 0x82 for an identifier still in use.
        """
        state = self.state(packet_identifier)
        if state:
            if (qos == 2 and state in (STORE_QOS_2, AWAIT_PUBREL)) or (again and qos == 1 and state == STORE_QOS_1):
                return False
            text = f"packet identifier {packet_identifier} comes again before its acknowledgement [MQTT-2.2.1-3]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)
        if len(self) >= self.limit:
            text = f"more than {self.limit} unacknowledged messages, our Receive Maximum [MQTT-3.3.4-7]"
            raise RemoteProtocolError(RECEIVE_MAXIMUM_EXCEEDED, text)
        self._states[packet_identifier] = STORE_QOS_1 if qos == 1 else STORE_QOS_2
        return True

    def state(self, packet_identifier: int) -> int:
        """Returns the state of the message with this packet identifier; DONE if there is none."""
        return self._states.get(packet_identifier, DONE) & ~NO_PLACE

    def release(self, packet_identifier: int) -> int:
        """Handles a received PUBREL; returns the message's state before it, DONE if there is no such message.

        Raises RemoteProtocolError(0x82) if our side has not sent a PUBREC for the message.
        """
        state = self.state(packet_identifier)
        if state == DONE:
            return DONE
        following = INCOMING.get(state << 4 | PUBREL)
        if following is None:
            text = f"PUBREL {packet_identifier} comes before our PUBREC [MQTT-4.3.3-4]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)
        self._states[packet_identifier] = following | self._states[packet_identifier] & NO_PLACE
        return state

    def acknowledge(self, packet_identifier: int, packet_type: int = PUBACK, refused: bool = False) -> None:
        """Records our PUBACK, PUBREC or PUBCOMP. Raises LocalProtocolError if no message waits for this packet."""
        state = self.state(packet_identifier)
        following = INCOMING.get(state << 4 | packet_type)
        if following is None:
            raise LocalProtocolError(f"no message {packet_identifier} waits for packet type {packet_type} from us")
        if following == DONE or (refused and packet_type == PUBREC):
            if self._states.pop(packet_identifier) & NO_PLACE:
                self._resumed -= 1
        else:
            self._states[packet_identifier] = following
