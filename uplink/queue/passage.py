"""Which of a route's acknowledged messages the tables have passed over, without a look at any machine's clock.

A message is passed over if it is not settled, and a later one is: one that came into the log long enough after the
broker had acknowledged the first. Landers and jobs may take messages in another order, but not by more than that time::

    acknowledged ──── resend_after_s ────► stored ──► handed on ──► settled
      this one                                        that one

So a job that is late, a broker without a subscriber, or a lander that is down have nothing sent again.
"""

from collections.abc import Callable
from typing import NamedTuple

MARKS_MOST = 512  # beyond it every second one goes
MARKS_IN = 8  # in the time that a later message has to be later


class Witness(NamedTuple):
    """A message of the route: its position and its identity."""

    position: int
    origin: str
    epoch: int
    seq: int


class Mark(NamedTuple):
    """One moment: when, the position up to which all was acknowledged, the newest one, and an acknowledged message."""

    at_s: float
    acknowledged: int
    head: int
    witness: Witness | None


class Passage:
    """How far the messages of one route have come, moment by moment.

    Args:
        after_s: how much later another message has to be, in seconds.
    """

    def __init__(self, after_s: float) -> None:
        self.after_s = after_s
        self._marks: list[Mark] = []

    @property
    def surely_later_s(self) -> float:
        """How much later a message has to come to prove a thing of another one, whenever the marks were made."""
        return self.after_s * (1 + 2 / MARKS_IN)

    @property
    def is_due(self) -> float:
        """The time of the next mark, in seconds of the same clock."""
        return self._marks[-1].at_s + self.after_s / MARKS_IN if self._marks else 0.0

    def note(self, mark: Mark) -> None:
        """Notes a moment."""
        self._marks.append(mark)
        if len(self._marks) > MARKS_MOST:
            self._marks = self._marks[:-1:2] + self._marks[-1:]

    def proved_at(self, is_settled: Callable[[Witness], bool]) -> float | None:
        """Returns a time, as late as can be: a message is settled that came into the log after it. None: none is."""
        for mark in reversed(self._marks):
            if mark.witness is not None and is_settled(mark.witness):
                position = mark.witness.position
                return max((one.at_s for one in self._marks if one.head < position), default=None)
        return None

    def acknowledged_at(self, at_s: float) -> int:
        """Returns a position up to which all was acknowledged at a time, 0 if none is known."""
        return max((one.acknowledged for one in self._marks if one.at_s <= at_s), default=0)

    def forget(self, position: int) -> None:
        """Everything up to a position is settled: forgets the moments before the last one of these."""
        done = sum(one.acknowledged <= position for one in self._marks)
        del self._marks[: max(0, done - 1)]
