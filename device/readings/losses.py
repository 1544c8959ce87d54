"""Messages that are gone without an acknowledgement are told upstream, and only then forgotten here.

Each gap of the store becomes a message with the readings `gap.first`, `gap.last` (numbers of messages), `gap.count` and
`gap.reason`, one of `flash_store.gaps.REASONS`. One that has grown is told again as a whole; after a power cut one may
be told twice.
"""


class Losses:
    """One gap at a time: a store that overflows must not fill with news of it.

    Args:
        log: the device's `flash_store.log.Log`.
        tell: called with samples, stores them and returns the message's id, or None where there is no room.
    """

    def __init__(self, log, tell) -> None:
        self._log = log
        self._tell = tell
        self._told: tuple | None = None  # the gap
        self._id: int | None = None  # of the message that tells it

    def advance(self) -> bool:
        """Forgets what has arrived, tells what is next; returns whether it does.

        Raises StoreFull where it cannot be forgotten yet.
        """
        if self._id is not None:
            if self._log.holds(self._id):
                return False
            if not any(first <= self._id <= last for first, last, _, _ in self._log.gaps()):
                self._log.forget_gaps([self._told])
            self._id = None  # a message that is itself gone told nothing
        gaps = self._log.gaps()
        if gaps:
            first, last, count, reason = self._told = min(gaps, key=lambda gap: gap[1])
            numbers = [("gap.first", None, first), ("gap.last", None, last), ("gap.count", "count", count)]
            self._id = self._tell(numbers + [("gap.reason", None, reason)])
        return self._id is not None
