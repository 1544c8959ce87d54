"""What a consumer might receive when a message was stored, where its access rules have changed since."""

from collections.abc import Callable

MayReceive = Callable[[str], bool]
"""Whether a topic name's messages may be received."""


def everything(_: str) -> bool:
    """May be received."""
    return True


class Rights:
    """The rules that the log's positions were stored under.

    Args:
        may_receive: whether the consumer may receive a topic name's messages by the rules of now.

    ``changed`` is the position up to which other rules say it.
    """

    def __init__(self, may_receive: MayReceive = everything) -> None:
        self.may_receive = may_receive
        self.changed = 0
        self._before: list[tuple[int, MayReceive]] = []  # each up to a position

    def change(self, before: MayReceive, read: int, head: int) -> None:
        """``may_receive`` answers by other rules from now on.

        Args:
            before: answers as it did until now.
            read: up to this position nothing will be asked.
            head: the log's newest position.
        """
        self._before = [(last, might) for last, might in self._before if last > read]
        self._before.append((head, before))
        self.changed = head

    def might_receive(self, position: int, topic: str) -> bool:
        """Whether the consumer might receive a topic name's messages when that at a position was stored."""
        if position > self.changed:
            return self.may_receive(topic)
        might = next((might for last, might in self._before if position <= last), self.may_receive)
        return might(topic)
