"""A connection behind its CONNACK, as the streams of its client share it."""

from collections.abc import Callable

from gateway.connection.intake.waiting import Waiting
from gateway.delivery import Flight
from gateway.port import Port
from gateway.sessions.devices import Heard
from gateway.store import AckOrder
from wire.bulk.connection import BulkServerConnection


class Accepted:
    """What the streams of one client share: the line, the packet identifiers, and the order of messages and answers.

    ``waiting`` has the messages that came and cannot be stored yet, ``order`` the answers in their order [section 4.6],
    and ``flight`` what was sent and is not acknowledged.

    Args:
        name: the client's name in the log.
        protocol: the connection.
        port: the line under it.
        flush: puts on the line what the protocol core has to say.
        fail: ends the connection because of a fault of ours; called with a text.
        disconnect: ends the connection with a reason code.
        heard: where it is noted when the client sends messages, None for one without a name of its own.
    """

    __slots__ = ("disconnect", "flight", "heard", "name", "order", "port", "protocol", "waiting")

    def __init__(
        self,
        name: str,
        protocol: BulkServerConnection,
        port: Port,
        flush: Callable[[], None],
        fail: Callable[[str], None],
        disconnect: Callable[[int], None],
        heard: Heard | None = None,
    ) -> None:
        self.name = name
        self.protocol = protocol
        self.port = port
        self.disconnect = disconnect
        self.heard = heard
        self.waiting = Waiting()
        self.order = AckOrder(flush, fail)
        self.flight = Flight()

    @property
    def flush(self) -> Callable[[], None]:
        """Puts on the line what the protocol core has to say."""
        return self.order.answered

    @property
    def fail(self) -> Callable[[str], None]:
        """Ends the connection because of a fault of ours; called with a text."""
        return self.order.failed
