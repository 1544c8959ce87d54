"""How long to wait before the next attempt to reach a peer: decorrelated jitter.

Each wait is drawn between the shortest one and three times the wait before, up to a cap, so that many devices
that lost their broker at the same moment do not return at the same moment (M. Brooker, "Exponential Backoff And
Jitter", 2015).
"""

import random


class Backoff:
    """The waits of one reconnecting party, in milliseconds."""

    def __init__(self, shortest_ms: int, longest_ms: int) -> None:
        self._shortest_ms = shortest_ms
        self._longest_ms = longest_ms
        self.reset()

    def reset(self) -> None:
        """After a success the next wait is a short one again."""
        self._wait_ms = self._shortest_ms

    def next_wait_ms(self) -> int:
        """Returns the next wait, between the shortest and the longest one."""
        spread_ms = 3 * self._wait_ms - self._shortest_ms
        drawn_ms = self._shortest_ms + int(random.random() * spread_ms)
        self._wait_ms = min(self._longest_ms, drawn_ms)
        return self._wait_ms
