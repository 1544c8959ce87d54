"""The bytes that a route may send and receive in a day."""

import logging
from datetime import datetime

from uplink.connect.notes import Note

logger = logging.getLogger(__name__)


class Budget:
    """Counts a route's bytes of the day in its note.

    Args:
        bytes_per_day: how many there may be; None: any number.
        waits: whether the route waits for the next day when they are spent.
        name: the route's name.
    """

    def __init__(self, bytes_per_day: int | None, *, waits: bool, name: str) -> None:
        self._bytes_per_day = bytes_per_day
        self._waits = waits
        self._name = name

    def spend(self, note: Note, size: int, now: datetime) -> None:
        """Counts bytes, and says once a day that more than the budget is spent."""
        if self._bytes_per_day is None:
            return
        was_spent = self._is_spent(note, now)
        if note.day != _day(now):
            note.day, note.bytes = _day(now), 0
        note.bytes += size
        if self._is_spent(note, now) and not was_spent and not self._waits:
            logger.warning("route %s: the %d bytes of the day are spent, and it goes on", self._name, note.bytes)

    def allows(self, note: Note, now: datetime) -> bool:
        """Whether the route may be connected at this local time."""
        return not (self._waits and self._is_spent(note, now))

    def _is_spent(self, note: Note, now: datetime) -> bool:
        return self._bytes_per_day is not None and note.day == _day(now) and note.bytes >= self._bytes_per_day


def _day(now: datetime) -> str:
    return now.date().isoformat()
