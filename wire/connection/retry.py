"""When a client repeats an unacknowledged packet over the same connection, which only MQTT 3.1.1 allows."""

LONGEST_FACTOR = 16  # the waits before the repetitions are 1, 2, 4 … at most 16 intervals


class RetryDue:
    """Event: these messages have waited too long. Publish each again with `dup=True`, in this order."""

    def __init__(self, packet_identifiers: list) -> None:
        self.packet_identifiers = packet_identifiers

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RetryDue) and self.packet_identifiers == other.packet_identifiers

    def __repr__(self) -> str:
        return f"RetryDue({self.packet_identifiers})"


class RetryTimer:
    """The packet identifiers that wait for an acknowledgement, oldest first, and the time that they may wait.

    The wait doubles with each repetition. If a packet was sent once, the time until its acknowledgement shows how fast
    the broker is: the wait becomes twice that time, or the interval if that is longer. If a packet was repeated, its
    acknowledgement may answer either packet, so that its time is not used (P. Karn's rule).

    Args:
        interval_ms: the shortest wait.
    """

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._wait_ms = interval_ms
        self._waiting: list = []  # [packet identifier, when it was sent last, whether it was sent again]

    def sent(self, packet_identifier: int, now_ms: int) -> None:
        """Adds the packet identifier of a PUBLISH or PUBREL that was sent now."""
        self._waiting.append([packet_identifier, now_ms, False])

    def acknowledged(self, packet_identifier: int, now_ms: int) -> None:
        """Removes a packet identifier, because its acknowledgement came now."""
        for position, entry in enumerate(self._waiting):
            if entry[0] == packet_identifier:
                self._waiting.pop(position)
                if not entry[2]:
                    self._wait(2 * (now_ms - entry[1]))
                return

    def next_timer_ms(self) -> int | None:
        if not self._waiting:
            return None
        return min([sent_ms for _, sent_ms, _ in self._waiting]) + self._wait_ms

    def take_due(self, now_ms: int) -> list:
        """Returns the packet identifiers whose wait is over, oldest first; each starts a new wait."""
        due = []
        for entry in self._waiting:
            if now_ms >= entry[1] + self._wait_ms:
                due.append(entry[0])
                entry[1] = now_ms
                entry[2] = True
        if due:
            self._wait(2 * self._wait_ms)
        return due

    def _wait(self, wait_ms: int) -> None:
        self._wait_ms = max(self._interval_ms, min(wait_ms, LONGEST_FACTOR * self._interval_ms))
