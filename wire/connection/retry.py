"""When to send again what stays unacknowledged: for MQTT 3.1.1, which lets the application decide."""

LONGEST_FACTOR = 16  # a broker that answers late gets a message again after 1, 2, 4 … at most 16 intervals


class RetryDue:
    """These messages have waited too long: publish each again with `dup=True`, in this order."""

    def __init__(self, packet_identifiers: list) -> None:
        self.packet_identifiers = packet_identifiers

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RetryDue) and self.packet_identifiers == other.packet_identifiers

    def __repr__(self) -> str:
        return f"RetryDue({self.packet_identifiers})"


class RetryTimer:
    """The packet identifiers that wait for an acknowledgement, oldest first, and how long they may.

    The wait doubles with each retry. The acknowledgement of something that was sent once shows how fast the broker is,
    and sets the wait to twice that time, or to the interval; one that comes for a message sent twice may answer either
    and shows nothing (P. Karn's rule).

    Args:
        interval_ms: the shortest wait.
    """

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._wait_ms = interval_ms
        self._waiting: list = []  # [packet identifier, when it was sent last, whether it was sent again]

    def sent(self, packet_identifier: int, now_ms: int) -> None:
        """A PUBLISH or PUBREL whose acknowledgement is awaited from now on."""
        self._waiting.append([packet_identifier, now_ms, False])

    def acknowledged(self, packet_identifier: int, now_ms: int) -> None:
        """Nothing is awaited for it any more, until it is `sent` again."""
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
        """The packet identifiers whose wait is over, oldest first; they count as sent again now."""
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
