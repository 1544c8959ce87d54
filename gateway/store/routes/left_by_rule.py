"""What the rules of a route leave out of its messages, such as nine of ten."""

from collections import deque
from collections.abc import Callable, Iterable

from gateway.message import Message
from gateway.store.consumers.delivery import ReasonToDrop
from gateway.store.tables.drops import SELECTED, Epoch

LeavesOut = Callable[[Message], bool]
"""Whether a message is left out; asked once for each message, in their order."""


class LeftByRule:
    """The messages that a cursor has come to, that rules leave out, and that have no range yet.

    They leave ranges ``selected`` as soon as the cursor's place is behind them, and with it in one transaction. So when
    the consumer comes to messages again after a crash, none of them has a range already.
    """

    __slots__ = ("_behind", "_found")

    def __init__(self) -> None:
        self._found: list[tuple[int, Message]] = []  # since the last ``settle``
        self._behind: deque[tuple[int, Epoch, int]] = deque()  # position, epoch and seq

    def add(self, position: int, message: Message) -> None:
        """A message is left out."""
        self._found.append((position, message))

    def settle(self) -> list[tuple[int, Message]]:
        """Returns the messages that were added since the last call, with their positions."""
        found, self._found = self._found, []
        self._behind.extend([(at, *_identity(one)) for at, one in found])
        return found

    def take(self, position: int) -> dict[Epoch, list[int]]:
        """Returns and forgets the messages up to a position: first and last seq of an epoch, and how many."""
        left = self._behind
        found: dict[Epoch, list[int]] = {}
        while left and left[0][0] <= position:
            _, epoch, seq = left.popleft()
            if (span := found.get(epoch)) is None:
                found[epoch] = [seq, seq, 1]
            else:
                span[0], span[1] = min(span[0], seq), max(span[1], seq)
                span[2] += 1
        return found

    def __bool__(self) -> bool:
        return bool(self._behind)


TellLeftOut = Callable[[Iterable[tuple[int, Message]]], None]
"""Called with messages that rules leave out, and their positions."""


def either(limits: ReasonToDrop | None, leaves_out: LeavesOut) -> ReasonToDrop:
    """Returns why a message is not handed out: a limit drops it, or it is left out."""

    def reason(message: Message) -> str | None:
        return (limits and limits(message)) or (SELECTED if leaves_out(message) else None)

    return reason


def _identity(message: Message) -> tuple[Epoch, int]:
    return (message.publisher, message.origin, message.epoch), (message.seq if message.origin else 0)
