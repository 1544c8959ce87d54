"""Which of its receivers a message is for, where a route shares its messages among them."""

from collections.abc import Sequence
from typing import Literal

BalanceMode = Literal["none", "round_robin", "weighted", "sorted"]


class Receivers:
    """Chooses a receiver for each message.

    Receivers that are not there are passed over, as long as one is.

    Args:
        mode: ``none``: each message is for all of them. ``round_robin``: one after the other. ``weighted``: the one
            with the fewest messages that it has not acknowledged. ``sorted``: the lowest name.
        names: the receivers.
    """

    def __init__(self, mode: BalanceMode, names: Sequence[str]) -> None:
        self._mode = mode
        self._names = list(names)
        self._loads = dict.fromkeys(names, 0)
        self._missing: set[str] = set()
        self._turn = 0

    def choose(self) -> str:
        """Returns the receiver of the next message, "" for all."""
        if self._mode == "none" or not self._names:
            return ""
        there = [one for one in self._names if one not in self._missing] or self._names
        if self._mode == "sorted":
            chosen = min(there)
        elif self._mode == "weighted":
            chosen = min(there, key=self._loads.__getitem__)
        else:
            chosen = there[self._turn % len(there)]
            self._turn += 1
        self._loads[chosen] += 1
        return chosen

    def note_load(self, receiver: str, unacknowledged: int | None) -> None:
        """Notes how many messages a receiver has not acknowledged; None: it is not there."""
        if unacknowledged is None:
            self._missing.add(receiver)
        else:
            self._missing.discard(receiver)
            self._loads[receiver] = unacknowledged
