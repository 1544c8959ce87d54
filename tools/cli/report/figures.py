"""What the report says, read from the tables."""

from bisect import bisect_right
from collections import defaultdict
from datetime import datetime, timedelta
from typing import NamedTuple

from cloud import OpenTables, Result

HOUR = timedelta(hours=1)
SILENCE = timedelta(days=30)
_COLUMNS_MAX = 72
_ROWS_MAX = 200

OLDEST = timedelta(days=366)
"""The axis of time begins so long before the first landing: what was stored for longer is rarer than a wrong clock."""
NEWEST = timedelta(days=1)
"""The axis ends so long after the last landing, where times become wrong in `readings` too."""
_NAMES_MAX = 3

# What is explained has a reason that tells where its messages are. Only a statement tells what an origin sent last.
_VERDICT = """
    SELECT (SELECT coalesce(sum(arrived), 0) FROM completeness) AS arrived,
        (SELECT coalesce(sum(missing), 0) FROM completeness) AS missing,
        (SELECT coalesce(sum(conflicts), 0) FROM completeness) AS conflicts,
        (SELECT count(*) FROM readings) AS readings,
        (SELECT count(*) FROM gaps WHERE reason NOT IN ('unknown', 'in transit')) AS explained,
        (SELECT count(*) FROM gaps WHERE reason = 'in transit') AS in_transit,
        (SELECT count(*) FROM gaps WHERE reason = 'unknown') AS unexplained,
        (SELECT count(*) FROM completeness) AS origins,
        (SELECT count(*) FROM completeness ANTI JOIN statement_origins
            ON completeness.origin = statement_origins.origin
            AND completeness.epoch = statement_origins.origin_epoch) AS unstated,
        (SELECT count(*) FROM quarantine WHERE kind <> 'decoded') AS quarantined"""
_LANDINGS = "SELECT min(landed_at), max(landed_at) FROM bronze_messages"
_TOTALS = """
    SELECT (SELECT count(*) FROM devices) AS devices, (SELECT count(*) FROM readings) AS readings,
        (SELECT coalesce(sum(arrived), 0) FROM completeness) AS "messages arrived",
        (SELECT coalesce(sum(missing), 0) FROM completeness) AS "messages missing",
        (SELECT coalesce(sum(conflicts), 0) FROM completeness) AS "messages in conflict",
        (SELECT count(*) FROM quarantine) AS "in quarantine",
        (SELECT coalesce(sum(duplicates), 0) FROM batches) AS "duplicates removed" """
# Each origin's first rows go before any origin's second ones: an origin that floods cannot displace the others.
_LIST = f"""
    SELECT * EXCLUDE (turn) FROM (
        SELECT *, row_number() OVER (PARTITION BY origin ORDER BY {{order}}) AS turn FROM {{view}}
        ORDER BY turn, {{order}} LIMIT {_ROWS_MAX})
    ORDER BY {{order}}"""
_DEVICES_ORDER = "last DESC, origin, device"
_GAPS_ORDER = "missing DESC, origin, epoch, lo"
_CELLS = """
    SELECT origin, origin || CASE WHEN device IS NULL OR device = origin THEN '' ELSE ' / ' || device END AS name, hour,
        CAST(expected AS BIGINT) AS expected, CAST(arrived AS BIGINT) AS arrived
    FROM completeness_by_hour WHERE hour IS NOT NULL AND expected IS NOT NULL"""
_RATES = "SELECT date_trunc('hour', utc) AS hour, count(*) AS readings FROM timeline GROUP BY ALL"
_HOPS = """
    SELECT 'from the device to its gateway' AS hop, epoch(received_at) - epoch(time) AS seconds
    FROM readings WHERE record = 0 AND event_time_by = 'device' AND received_at IS NOT NULL
    UNION ALL
    SELECT 'from the gateway to the lander', epoch(landed_at) - epoch(received_at)
    FROM bronze_messages WHERE received_at IS NOT NULL AND landed_at IS NOT NULL
    UNION ALL
    SELECT 'from the lander to the tables', epoch(proved_at) - epoch(landed_at)
    FROM bronze_messages JOIN batches USING (batch) WHERE landed_at IS NOT NULL"""
_LATENCY = f"""
    SELECT hop, count(*) AS messages, quantile_cont(seconds, 0.5) AS median, quantile_cont(seconds, 0.95) AS "95 %",
        max(seconds) AS longest
    FROM ({_HOPS}) GROUP BY hop ORDER BY hop"""


class Verdict(NamedTuple):
    """How many messages arrived and are missing, how many gaps have which kind of reason, and what is not known.

    conflicts: how many messages came with the identity of another one, so that no reading is of them.
    origins: how many stores of origins sent messages; unstated: how many of these no statement is about.
    """

    arrived: int
    missing: int
    conflicts: int
    readings: int
    explained: int
    in_transit: int
    unexplained: int
    origins: int
    unstated: int
    quarantined: int


class Outside(NamedTuple):
    """The messages whose times lie outside the axis of time, and some of their devices."""

    messages: int
    devices: list[str]


class Cell(NamedTuple):
    """The messages of a device in a span of time."""

    expected: int
    arrived: int


class Spans(NamedTuple):
    """Equal spans of time, by their beginnings. Silences of more than SILENCE have none."""

    length: timedelta
    starts: list[datetime]

    def place(self, at: datetime) -> int:
        """Returns the number of the span that a time is in."""
        return bisect_right(self.starts, at) - 1

    def follows_silence(self, place: int) -> bool:
        """Returns whether a silence lies between this span and the one before it."""
        return place > 0 and self.starts[place] > self.starts[place - 1] + self.length


class HeatMap(NamedTuple):
    """Cells by the number of their span, for each device. The devices that lack most come first."""

    spans: Spans
    rows: dict[str, dict[int, Cell]]
    left_out: int
    outside: Outside


class Listing(NamedTuple):
    """Rows of a view, and how many more there are."""

    rows: Result
    left_out: int


class Figures(NamedTuple):
    """All that the page shows. `rates` has the number of readings in each of its spans."""

    verdict: Verdict
    totals: Result
    devices: Listing
    heat_map: HeatMap | None
    gaps: Listing
    rates: tuple[Spans, list[int]] | None
    latency: Result


def read_figures(tables: OpenTables) -> Figures:
    """Asks the tables. Raises BadQuery."""
    axis = _axis(tables.select(_LANDINGS))
    return Figures(
        Verdict(*map(_count, tables.select(_VERDICT).rows[0])),
        tables.select(_TOTALS),
        _listing(tables, "devices", _DEVICES_ORDER),
        _heat_map(tables.select(_CELLS), axis),
        _listing(tables, "gaps", _GAPS_ORDER),
        _rates(tables.select(_RATES), axis),
        tables.select(_LATENCY),
    )


def _listing(tables: OpenTables, view: str, order: str) -> Listing:
    rows = tables.select(_LIST.format(view=view, order=order))
    ((count,),) = tables.select(f"SELECT count(*) FROM {view}").rows
    assert isinstance(count, int)
    return Listing(rows, count - len(rows.rows))


def _count(value: object) -> int:
    assert isinstance(value, int)
    return value


class Axis(NamedTuple):
    """The times that the axis of time may have."""

    first: datetime
    last: datetime

    def has(self, at: datetime) -> bool:
        """Returns whether a time is on the axis."""
        return self.first <= at <= self.last


def _axis(landings: Result) -> Axis | None:
    """Returns the times that are plausible, by the landings; None without any."""
    ((first, last),) = landings.rows
    return Axis(first - OLDEST, last + NEWEST) if isinstance(first, datetime) and isinstance(last, datetime) else None


def _on(axis: Axis | None, hours: list[datetime]) -> list[datetime]:
    """Returns the hours on the axis; all of them if it has none."""
    return [hour for hour in hours if axis is None or axis.has(hour)] or hours


def _heat_map(cells: Result, axis: Axis | None) -> HeatMap | None:
    """Sums hours up to spans, so that a page has room for all of them."""
    hours = _on(axis, [hour for _, _, hour, *_ in cells.rows if isinstance(hour, datetime)])
    if not hours:
        return None
    spans = _spans(hours)
    shown_hours = set(hours)
    outside: dict[str, int] = defaultdict(int)
    counts: dict[tuple[str, str], dict[int, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for origin, name, hour, expected, arrived in cells.rows:
        assert isinstance(hour, datetime) and isinstance(expected, int) and isinstance(arrived, int)
        if hour not in shown_hours:
            outside[str(name)] += arrived
            continue
        count = counts[str(origin), str(name)][spans.place(hour)]
        count[0] += expected
        count[1] += arrived
    rows = {name: {place: Cell(*count) for place, count in row.items()} for name, row in counts.items()}
    shown = _in_turn(sorted(rows, key=lambda name: _lacking(name, rows[name])))
    ordered = sorted(shown, key=lambda name: _lacking(name, rows[name]))
    return HeatMap(
        spans,
        {name: rows[origin, name] for origin, name in ordered},
        len(rows) - len(shown),
        Outside(sum(outside.values()), sorted(outside)[:_NAMES_MAX]),
    )


def _in_turn(names: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns as many names as the page has room for: the first one of each origin, then each one's second."""
    turns: dict[str, int] = defaultdict(int)
    numbered = []
    for origin, name in names:
        numbered.append((turns[origin], (origin, name)))
        turns[origin] += 1
    return [name for _, name in sorted(numbered, key=lambda one: one[0])][:_ROWS_MAX]


def _lacking(name: tuple[str, str], cells: dict[int, Cell]) -> tuple[int, tuple[str, str]]:
    return sum(cell.arrived - cell.expected for cell in cells.values()), name


def _rates(hours: Result, axis: Axis | None) -> tuple[Spans, list[int]] | None:
    counts = {hour: count for hour, count in hours.rows if isinstance(hour, datetime) and isinstance(count, int)}
    if not counts:
        return None
    shown = _on(axis, list(counts))
    spans = _spans(shown)
    rates = [0] * len(spans.starts)
    for hour in shown:
        rates[spans.place(hour)] += counts[hour]
    return spans, rates


def _spans(hours: list[datetime]) -> Spans:
    """Returns spans that have all hours. One time of a wrong clock, decades away, does not make them months long."""
    ordered = sorted(set(hours))
    runs = [[ordered[0], ordered[0]]]
    for hour in ordered[1:]:
        if hour - runs[-1][1] > SILENCE:
            runs.append([hour, hour])
        else:
            runs[-1][1] = hour
    counts = [(last - first) // HOUR + 1 for first, last in runs]
    hours_each = -(-sum(counts) // _COLUMNS_MAX)
    starts = [
        first + HOUR * number
        for (first, _), count in zip(runs, counts, strict=True)
        for number in range(0, count, hours_each)
    ]
    return Spans(HOUR * hours_each, starts)
