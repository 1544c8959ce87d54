"""Which topic names a consumer might receive when a message was stored, if its access rules have changed since."""

from collections.abc import Callable

MayReceive = Callable[[str], bool]
"""Returns whether messages of a topic name may be received."""


def everything(_: str) -> bool:
    """Allows every topic name."""
    return True


class Rights:
    """The access rules of a consumer, by the position of the message.

    Args:
        may_receive: whether the consumer may receive messages of a topic name by today's rules.

    ``changed`` is the position up to which former rules apply.
    """

    def __init__(self, may_receive: MayReceive = everything) -> None:
        self.may_receive = may_receive
        self.changed = 0
        self._before: list[tuple[int, MayReceive]] = []  # each up to a position

    def change(self, before: MayReceive, read: int, head: int) -> None:
        """The rules behind ``may_receive`` have changed.

        Args:
            before: answers by the former rules.
            read: the consumer has read up to this position.
            head: the log's newest position.
        """
        self._before = [(last, might) for last, might in self._before if last > read]
        self._before.append((head, before))
        self.changed = head

    def might_receive(self, position: int, topic: str) -> bool:
        """Whether the consumer might receive a topic name when the message at a position was stored."""
        if position > self.changed:
            return self.may_receive(topic)
        might = next((might for last, might in self._before if position <= last), self.may_receive)
        return might(topic)
