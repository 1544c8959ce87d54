"""Who may have how many QoS 1 and 2 messages on the way (section 4.9): one machine for every role.

Both windows live as long as one network connection. Packet identifiers of the two directions are independent. The
states are those of `wire.states`.
"""

from wire.errors import LocalProtocolError, RemoteProtocolError
from wire.packet_types import PUBACK, PUBREC, PUBREL
from wire.reasons import PROTOCOL_ERROR, RECEIVE_MAXIMUM_EXCEEDED
from wire.states import (
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

IDENTIFIER_MAX = 65_535

_NO_PLACE = 8  # or'ed to the state of an identifier that takes no place under the limit


class SendWindow:
    """The packet identifiers we have in use; at most `limit`, the peer's Receive Maximum, belong to messages.

    Those that it chooses itself begin with `first`.
    """

    def __init__(self, limit: int, first: int = 1) -> None:
        self.limit = limit
        self._states: dict = {}  # packet identifier: state, perhaps with _NO_PLACE
        self._places_taken = 0
        self._last = first - 1

    @property
    def quota(self) -> int:
        """Messages that may be sent now."""
        return self.limit - self._places_taken

    def __len__(self) -> int:
        return self._places_taken

    def __contains__(self, packet_identifier: int) -> bool:
        return packet_identifier in self._states

    def state(self, packet_identifier: int | None) -> int:
        """DONE for an identifier that is not in use."""
        return self._states.get(packet_identifier, DONE) & ~_NO_PLACE

    def acquire(self, packet_identifier: int | None = None, qos: int = 1) -> int:
        """Takes a place for a message under this or the next free identifier, which is returned.

        Raises LocalProtocolError when the window is full [MQTT-3.3.4-9] or the identifier is in use [MQTT-2.2.1-3].
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
        """An identifier for a SUBSCRIBE or UNSUBSCRIBE, which takes no place under the limit."""
        packet_identifier = self._next_free()
        self._states[packet_identifier] = AWAIT_ANSWER | _NO_PLACE
        return packet_identifier

    def acknowledge(self, packet_identifier: int, packet_type: int, refused: bool = False) -> int:
        """Takes a received PUBACK, PUBREC or PUBCOMP; returns the state the message was in, DONE if unknown.

        Raises RemoteProtocolError(0x82) for one that does not fit this message's flow.
        """
        state = self.state(packet_identifier)
        if state == DONE:
            return DONE
        following = OUTGOING[state].get(packet_type)
        if following is None or (refused and state not in (AWAIT_PUBACK, AWAIT_PUBREC)):
            text = f"packet type {packet_type} answers nothing that {packet_identifier} stands for [MQTT-4.3.3-1]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)
        if refused or following == DONE:
            self.release(packet_identifier)
        else:
            self._states[packet_identifier] = following | self._states[packet_identifier] & _NO_PLACE
        return state

    def free(self, packet_identifier: int) -> None:
        """Our PUBREL: its PUBREC came, on this connection or on an earlier one of the session.

        The quota counts from each connection's start anew, so that one of an earlier connection takes no place.
        Raises LocalProtocolError for a message without PUBREC.
        """
        state = self.state(packet_identifier)
        if state not in (DONE, AWAIT_STORE, AWAIT_PUBCOMP):
            raise LocalProtocolError(f"no PUBREC has come for packet identifier {packet_identifier} [MQTT-4.3.3-4]")
        place = self._states.get(packet_identifier, _NO_PLACE) & _NO_PLACE
        self._states[packet_identifier] = AWAIT_PUBCOMP | place

    def release(self, packet_identifier: int) -> bool:
        """Gives an identifier back; False when it was not in use."""
        state = self._states.pop(packet_identifier, None)
        if state is None:
            return False
        if not state & _NO_PLACE:
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
    """The messages a peer has sent that we have not acknowledged; at most `limit`, our own Receive Maximum."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._states: dict = {}
        self._resumed = 0  # of those some that an earlier connection brought: they take no place under the limit

    def __len__(self) -> int:
        return len(self._states) - self._resumed

    def __contains__(self, packet_identifier: int) -> bool:
        return packet_identifier in self._states

    def resume(self, packet_identifier: int) -> None:
        """A QoS 2 message of an earlier connection that we have, and whose PUBREL has not come."""
        if packet_identifier not in self._states:
            self._states[packet_identifier] = AWAIT_PUBREL | _NO_PLACE
            self._resumed += 1

    def open(self, packet_identifier: int, qos: int = 1, again: bool = False) -> bool:
        """Takes a PUBLISH; False where it comes again and is known. A QoS 2 one may [MQTT-4.3.3-10], and with `again`
        set any that has DUP does, as MQTT 3.1.1 has it.

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
        """DONE for an identifier that is not open."""
        return self._states.get(packet_identifier, DONE) & ~_NO_PLACE

    def release(self, packet_identifier: int) -> int:
        """Takes a PUBREL; returns the state the message was in, DONE where there is none.

        Raises RemoteProtocolError(0x82) where no PUBREC of ours has gone.
        """
        state = self.state(packet_identifier)
        if state == DONE:
            return DONE
        following = INCOMING[state].get(PUBREL)
        if following is None:
            text = f"PUBREL {packet_identifier} comes before our PUBREC [MQTT-4.3.3-4]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)
        self._states[packet_identifier] = following | self._states[packet_identifier] & _NO_PLACE
        return state

    def acknowledge(self, packet_identifier: int, packet_type: int = PUBACK, refused: bool = False) -> None:
        """Our PUBACK, PUBREC or PUBCOMP. Raises LocalProtocolError when there is nothing that it acknowledges."""
        state = self.state(packet_identifier)
        following = INCOMING[state].get(packet_type) if state else None
        if following is None:
            raise LocalProtocolError(f"no message with packet identifier {packet_identifier} waits for that from us")
        if following == DONE or (refused and packet_type == PUBREC):
            if self._states.pop(packet_identifier) & _NO_PLACE:
                self._resumed -= 1
        else:
            self._states[packet_identifier] = following
