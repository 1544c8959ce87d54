"""A route's window: messages in flight to the next broker, and its acknowledgements."""

import logging
import time

from gateway.routes import (
    AckBatch,
    Grant,
    Message,
    MessageLog,
    Outgoing,
    Peer,
    RouteState,
    Shift,
    Window,
    identity_properties,
)
from uplink.remote import Remote
from wire.bulk.connection import Acknowledgements, BulkClientConnection
from wire.codec.packets import Packet, Puback, Pubcomp, Pubrec
from wire.packet_types import PUBACK, PUBREC
from wire.reasons import NOT_AUTHORIZED, UNSPECIFIED_ERROR, describe

ADVICE = {NOT_AUTHORIZED: "; another Holdfast gateway accepts it if an access rule lets this route identify its origin"}

logger = logging.getLogger(__name__)


class RouteWindow(Window):
    """The window of one connection to the next broker. No message is passed over: that would lose it.

    A message that cannot be sent, or that the broker refuses, ends the connection and goes out again over the next one.

    Args:
        client: the connection, already accepted.
        remote: the line under it.
        log: the gateway's store.
        outgoing: the route's QoS 2 flows.
        consumer: the name of the route's cursor.
        state: the route's state, where this window counts and notes refusals.
        session_present: whether the broker still has the route's session.
    """

    def __init__(
        self,
        client: BulkClientConnection,
        remote: Remote,
        log: MessageLog,
        outgoing: Outgoing,
        consumer: str,
        state: RouteState,
        *,
        session_present: bool,
    ) -> None:
        peer = Peer(f"route {state.name}", client, remote, remote.flush, lambda _: True, True, session_present)
        super().__init__(peer, log, consumer, outgoing, Shift())
        self._remote = remote
        self._state = state
        self._batch = AckBatch(log.submit, remote.flush, remote.close)

    def publish(
        self, message: Message, grant: Grant, packet_identifier: int | None = None, *, dup: bool = False
    ) -> bool:
        """Raises WireError for a message that the broker does not take."""
        self._state.retries += dup
        self.send(message, grant, packet_identifier, dup and self.session_present, identity_properties)
        return True

    def is_wanted(self, message: Message) -> bool:
        """True: an expired message goes on as well, and the next broker drops it."""
        return True

    def handle(self, packet: Packet | Acknowledgements) -> None:
        """Acts on the broker's acknowledgements; a refusal ends the connection."""
        if isinstance(packet, Acknowledgements):
            self._acknowledge(packet.packet_type, packet.identifiers)
        elif isinstance(packet, Puback | Pubrec) and packet.reason_code >= UNSPECIFIED_ERROR:
            self._state.refused = packet.packet_identifier
            reason = describe(packet.reason_code) + ADVICE.get(packet.reason_code, "")
            self._remote.close(f"the broker refused packet identifier {packet.packet_identifier}: {reason}")
        elif isinstance(packet, Puback | Pubrec | Pubcomp):
            self._acknowledge(packet.TYPE, [packet.packet_identifier])

    def _acknowledge(self, packet_type: int, packet_identifiers: list[int]) -> None:
        self._state.acknowledged_ms = int(time.time() * 1000)
        if self._state.refused and self._state.refused in packet_identifiers:
            logger.info("%s: the broker now accepts the message that it refused", self.name)
            self._state.refused = 0
        if packet_type == PUBACK:
            self.handle_pubacks(packet_identifiers)
        elif packet_type == PUBREC:
            self.handle_pubrecs(packet_identifiers, self._batch.add)
            self._batch.end()
        else:
            self.handle_pubcomps(packet_identifiers)
