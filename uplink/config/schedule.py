"""The schedule of a route: the windows in which it may connect, as cron expressions."""

from datetime import datetime, timedelta

from cronsim import CronSim, CronSimError

FIELDS = 5  # minute, hour, day of month, month, day of week
MINUTE = timedelta(minutes=1)


class Schedule:
    """Tells whether one of the cron expressions matches the current minute; without any, all times will do.

    Args:
        expressions: cron expressions of five fields, checked by `check_window`.

    ``opens`` is the minute from which one of them matched or will match, as `is_open` found it last.
    """

    def __init__(self, expressions: tuple[str, ...]) -> None:
        self._expressions = expressions
        self._minute = datetime.min
        self.opens = datetime.min

    def is_open(self, now: datetime) -> bool:
        """Whether the route may be connected at this local time, which has no time zone."""
        minute = now.replace(second=0, microsecond=0)
        if self._expressions and minute != self._minute:
            self._minute = minute
            found = (_next(expression, minute - MINUTE) for expression in self._expressions)
            self.opens = min((one for one in found if one is not None), default=datetime.max)
        return self.opens <= minute


def check_window(expression: str) -> None:
    """Raises ValueError unless a text is a cron expression of five fields that some minute matches."""
    if len(expression.split()) != FIELDS:
        raise ValueError(f"{expression!r}, expected minute, hour, day of month, month and day of week")
    try:
        if _next(expression, datetime.now()) is None:
            raise ValueError(f"{expression!r}, expected a time that comes")
    except CronSimError as error:
        raise ValueError(f"{expression!r}: {error}") from None


def _next(expression: str, after: datetime) -> datetime | None:
    return next(CronSim(expression, after), None)
