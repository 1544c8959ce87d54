"""Which messages a source is asked for: by an origin, and by a span of time. Other rows never reach Spark.

Spark can hand a source the conditions of a query, too. Version 4.2 keeps them beside the DataFrame: a second query of
the same DataFrame without conditions gets the rows of the first one, and two branches of a query both get the rows of
one. So conditions are options here, which belong to one DataFrame, and Spark judges all others by itself.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import reduce
from operator import and_
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

_TIMES = ("event_time", "landed_at", "stated_at", "planned_at")
"""The columns that `since` and `until` are about: the first of them that there is."""


class Wanted(NamedTuple):
    """An origin, and the times of `column` from `since` on and before `until`; None where it does not matter."""

    origin: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    column: str = ""

    @property
    def expression(self) -> pc.Expression | None:
        """What rows have to meet, for Arrow; None if all are wanted."""
        at = pc.field(self.column)
        found = [
            *([pc.field("origin") == self.origin] if self.origin is not None else []),
            *([at >= self.since] if self.since is not None else []),
            *([at < self.until] if self.until is not None else []),
        ]
        return reduce(and_, found) if found else None


def parse_wanted(options: Mapping[str, str], schema: pa.Schema) -> Wanted:
    """Returns what the options `origin`, `since` and `until` say. Raises ValueError.

    schema: the columns of what is read.
    """
    column = next((name for name in _TIMES if name in schema.names), "")
    given = {name for name in ("origin", "since", "until") if options.get(name) is not None}
    if "origin" in given and "origin" not in schema.names:
        raise ValueError("the option origin is of no use here: the table has no such column")
    if given & {"since", "until"} and not column:
        raise ValueError("the options since and until are of no use here: the table has no time")
    return Wanted(options.get("origin"), _time(options, "since"), _time(options, "until"), column)


def _time(options: Mapping[str, str], name: str) -> datetime | None:
    if (text := options.get(name)) is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{name} is a time as 2026-06-01 or 2026-06-01T12:30:00Z, not {text!r}") from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
