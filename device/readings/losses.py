"""Reports messages that were lost without an acknowledgement, and forgets each loss only when its report has arrived.

Each gap of the store becomes a message with the readings `gap.first` and `gap.last` (message numbers), `gap.count` and
`gap.reason`, one of `flash_store.gaps.REASONS`. If a gap grows after its report was made, the whole gap is reported
again. After a power cut a gap may be reported twice.
"""


class Losses:
    """Reports one gap at a time, so that reports do not fill a store that overflows.

    Args:
        log: the device's `flash_store.log.Log`.
        tell: called with samples; stores them and returns the message's id, or None if there is no room.
    """

    def __init__(self, log, tell) -> None:
        self._log = log
        self._tell = tell
        self._told: tuple = ()  # the gap that was reported last
        self._id: int | None = None  # id of the message that reports it

    def advance(self) -> bool:
        """Forgets the gap whose report has arrived, and reports the next one; returns whether it reports one.

        Raises StoreFull if the store has no room to forget the gap yet.
        """
        if self._id is not None:
            if self._log.holds(self._id):
                return False
            if not any(first <= self._id <= last for first, last, _, _ in self._log.gaps()):
                self._log.forget_gaps([self._told])
            self._id = None  # if the report itself was lost, its gap is reported again
        gaps = self._log.gaps()
        if gaps:
            first, last, count, reason = self._told = min(gaps, key=lambda gap: gap[1])
            numbers = [("gap.first", None, first), ("gap.last", None, last), ("gap.count", "count", count)]
            self._id = self._tell(numbers + [("gap.reason", None, reason)])
        return self._id is not None
