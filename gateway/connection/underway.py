"""What is under way over one connection, whatever the streams."""

from collections.abc import Callable

from gateway.connection.waiting import Waiting
from gateway.delivery import Flight
from gateway.store import AckOrder


class Underway:
    """What the streams of one connection share: packet identifiers, and the order of messages and answers.

    ``waiting`` has the messages that came and cannot be stored yet, ``order`` the answers in their order [section 4.6],
    and ``flight`` what was sent and is not acknowledged.

    Args:
        answered: called when answers wait to be sent.
        failed: ends the connection because of a fault of ours; called with a text.
    """

    __slots__ = ("flight", "order", "waiting")

    def __init__(self, answered: Callable[[], None], failed: Callable[[str], None]) -> None:
        self.waiting = Waiting()
        self.order = AckOrder(answered, failed)
        self.flight = Flight()
