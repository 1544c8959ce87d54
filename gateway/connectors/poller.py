"""When each unit is polled: by a monotonic clock, without input and output.

Each poll is due at a time on a grid of its own, so that no lateness adds up. The polls of a line begin one behind the
other, not all at once. A unit that did not answer is tried only where its timeout ends before the next poll of another
unit is due, or at most SHARE_LATE of that one's interval later.
"""

from dataclasses import dataclass

from gateway.connectors.bus import UnitState
from gateway.connectors.modbus.blocks import Block

SHARE_LATE = 0.04  # of an interval
FORCE_TIMES = 10  # times its longest back-off: then a dead unit is tried on a busy line too
SPREAD = 1.5  # times as long as a poll should take is the time until the next unit's first one


@dataclass(slots=True, eq=False)
class Poll:
    """What is read of one unit at one interval.

    ``cost_s`` is how long it takes if the unit answers. ``due_s`` is when it is due, by the monotonic clock.
    """

    unit: UnitState
    device: str
    blocks: list[Block]
    interval_s: float
    cost_s: float
    due_s: float = 0.0
    late_most_s: float = 0.0
    missed: int = 0

    def begin(self, now_s: float, *, counts: bool = True) -> None:
        """It is made now; the next one is due an interval later. Polls that could not be made are left out.

        ``counts``: whether lateness counts; it does not while the unit is away.
        """
        left_out = max(0, int((now_s - self.due_s) // self.interval_s))
        if counts:
            self.late_most_s = max(self.late_most_s, now_s - self.due_s)
            self.missed += left_out
        self.due_s += (1 + left_out) * self.interval_s


class Schedule:
    """The polls of one line.

    Args:
        polls: the polls; those of one unit in any order.
        now_s: the time.
    """

    def __init__(self, polls: list[Poll], now_s: float) -> None:
        self._polls = polls
        at_s = now_s
        for poll in sorted(polls, key=lambda one: one.interval_s):
            poll.due_s = at_s
            at_s += SPREAD * poll.cost_s

    def next(self, now_s: float) -> tuple[Poll | None, float]:
        """Returns the poll to make now, or None and the time until there may be one, in seconds."""
        dead = sorted(self._first_of_dead(), key=lambda one: one.unit.retry_from_s)
        if dead and now_s - dead[0].unit.retry_from_s > FORCE_TIMES * dead[0].unit.backoff_s:
            return dead[0], 0.0
        alive = min((one for one in self._polls if not one.unit.is_dead), key=lambda one: one.due_s, default=None)
        if alive is not None and alive.due_s <= now_s:
            return alive, 0.0
        wait_s = alive.due_s - now_s if alive is not None else 60.0
        slack_s = wait_s + SHARE_LATE * alive.interval_s if alive is not None else float("inf")
        for poll in dead:
            left_s = poll.unit.retry_from_s - now_s
            if left_s > 0:
                return None, min(wait_s, left_s)
            if poll.unit.timeout_s + 2 * poll.cost_s <= slack_s:
                return poll, 0.0
        return None, wait_s

    def _first_of_dead(self) -> list[Poll]:
        """Returns the most frequent poll of each unit that is dead: it stands for all of the unit's."""
        found: dict[int, Poll] = {}
        for poll in self._polls:
            known = found.get(poll.unit.address)
            if poll.unit.is_dead and (known is None or poll.interval_s < known.interval_s):
                found[poll.unit.address] = poll
        return list(found.values())
