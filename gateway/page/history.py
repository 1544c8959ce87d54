"""A day of numbers in a fixed amount of memory: a ring of five minutes each, and nothing on the disk."""

from array import array
from math import isnan, nan

SLOT_S = 300
SLOTS = 288  # a day
SERIES_MAX = 128  # of 2.3 KB each; more have no history
LEAST_S = 600.0  # until a pace is known
PACE_SLOTS = 12  # the slots of an hour, over which a pace is measured


class History:
    """Series of numbers by name. A slot in which nothing was noted is not a number: the gateway did not run then."""

    def __init__(self) -> None:
        self._series: dict[str, array[float]] = {}
        self._slot = 0

    def begin(self, now_s: float) -> None:
        """Begins the slot of a Unix time, if it is a new one. After the clock was set back all begins anew."""
        slot = int(now_s // SLOT_S)
        if slot < self._slot - 1:
            self._series.clear()
            self._slot = slot
        elif slot > self._slot:
            for passed in range(max(self._slot + 1, slot - SLOTS + 1), slot + 1):
                for series in self._series.values():
                    series[passed % SLOTS] = nan
            self._slot = slot

    def note_most(self, name: str, value: float) -> None:
        """Notes a value of which a slot has the largest."""
        if (series := self._named(name)) is not None:
            place = self._slot % SLOTS
            series[place] = value if isnan(series[place]) else max(series[place], value)

    def note_last(self, name: str, value: float) -> None:
        """Notes a value of which a slot has the last."""
        if (series := self._named(name)) is not None:
            series[self._slot % SLOTS] = value

    def add(self, name: str, value: float) -> None:
        """Adds a value to the sum of the slot."""
        if (series := self._named(name)) is not None:
            place = self._slot % SLOTS
            series[place] = value if isnan(series[place]) else series[place] + value

    def points(self, name: str) -> list[float]:
        """Returns the numbers of a day, the oldest first; the last one is that of the slot that is not over."""
        series = self._series.get(name)
        if series is None:
            return [nan] * SLOTS
        first = (self._slot + 1) % SLOTS
        return [*series[first:], *series[:first]]

    def pace(self, name: str, now_s: float) -> float | None:
        """Returns by how much the last value of a series grew a second in the last hour; None if that is not known."""
        points = self.points(name)[-PACE_SLOTS - 1 :]
        for place, value in enumerate(points[:-1]):
            if not isnan(value) and not isnan(points[-1]):
                ended_s = (self._slot - (len(points) - 1 - place) + 1) * SLOT_S
                return (points[-1] - value) / (now_s - ended_s) if now_s - ended_s >= LEAST_S else None
        return None

    @property
    def began_s(self) -> float:
        """The Unix time at which the oldest slot began."""
        return float((self._slot - SLOTS + 1) * SLOT_S)

    def _named(self, name: str) -> "array[float] | None":
        series = self._series.get(name)
        if series is None and len(self._series) < SERIES_MAX:
            series = self._series[name] = array("d", [nan]) * SLOTS
        return series


def waiting_of(route: str) -> str:
    """Returns the name of the series of what waits for a route."""
    return f"waiting {route}"


def down_of(route: str) -> str:
    """Returns the name of the series that says whether a route was without a connection."""
    return f"down {route}"
