"""What the report says, read from the tables."""

from collections import defaultdict
from datetime import datetime, timedelta
from typing import NamedTuple

from cloud import OpenTables, Result

HOUR = timedelta(hours=1)
_COLUMNS_MAX = 72
_ROWS_MAX = 200

_TOTALS = """
    SELECT (SELECT count(*) FROM devices) AS devices, (SELECT count(*) FROM readings) AS readings,
        (SELECT coalesce(sum(arrived), 0) FROM completeness) AS "messages arrived",
        (SELECT coalesce(sum(missing), 0) FROM completeness) AS "messages missing",
        (SELECT count(*) FROM quarantine) AS "in quarantine",
        (SELECT coalesce(sum(duplicates), 0) FROM batches) AS "duplicates removed" """
_DEVICES = f"SELECT * FROM devices ORDER BY last DESC, origin, device LIMIT {_ROWS_MAX}"
_GAPS = f"SELECT * FROM gaps ORDER BY missing DESC, origin, epoch, lo LIMIT {_ROWS_MAX}"
_CELLS = """
    SELECT origin || CASE WHEN device IS NULL OR device = origin THEN '' ELSE ' / ' || device END AS name, hour,
        CAST(expected AS BIGINT) AS expected, CAST(arrived AS BIGINT) AS arrived
    FROM completeness_by_hour WHERE hour IS NOT NULL"""
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


class Cell(NamedTuple):
    """The messages of a device in a span of time."""

    expected: int
    arrived: int


class HeatMap(NamedTuple):
    """Cells by the place of their span, for each device. The devices that lack most come first."""

    start: datetime
    span: timedelta
    columns: int
    rows: dict[str, dict[int, Cell]]


class Figures(NamedTuple):
    """All that the page shows. `rates` are readings a span of the heat map's length, from `rates_start` on."""

    totals: Result
    devices: Result
    heat_map: HeatMap | None
    gaps: Result
    rates_start: datetime | None
    rates_span: timedelta
    rates: list[int]
    latency: Result


def read_figures(tables: OpenTables) -> Figures:
    """Asks the tables. Raises BadQuery."""
    rates_start, rates_span, rates = _rates(tables.select(_RATES))
    return Figures(
        tables.select(_TOTALS),
        tables.select(_DEVICES),
        _heat_map(tables.select(_CELLS)),
        tables.select(_GAPS),
        rates_start,
        rates_span,
        rates,
        tables.select(_LATENCY),
    )


def _heat_map(cells: Result) -> HeatMap | None:
    """Sums hours up to spans, so that a page has room for all of them."""
    hours = [hour for _, hour, *_ in cells.rows if isinstance(hour, datetime)]
    if not hours:
        return None
    start, span, columns = _spans(hours)
    counts: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for name, hour, expected, arrived in cells.rows:
        assert isinstance(hour, datetime) and isinstance(expected, int) and isinstance(arrived, int)
        count = counts[str(name)][(hour - start) // span]
        count[0] += expected
        count[1] += arrived
    rows = {name: {place: Cell(*count) for place, count in row.items()} for name, row in counts.items()}
    return HeatMap(start, span, columns, dict(sorted(rows.items(), key=_lacking)[:_ROWS_MAX]))


def _lacking(row: tuple[str, dict[int, Cell]]) -> tuple[int, str]:
    name, cells = row
    return sum(cell.arrived - cell.expected for cell in cells.values()), name


def _rates(hours: Result) -> tuple[datetime | None, timedelta, list[int]]:
    counts = {hour: count for hour, count in hours.rows if isinstance(hour, datetime) and isinstance(count, int)}
    if not counts:
        return None, HOUR, []
    start, span, columns = _spans(list(counts))
    rates = [0] * columns
    for hour, count in counts.items():
        rates[(hour - start) // span] += count
    return start, span, rates


def _spans(hours: list[datetime]) -> tuple[datetime, timedelta, int]:
    """Returns where the first span begins, how long a span is, and how many there are."""
    start, count = min(hours), (max(hours) - min(hours)) // HOUR + 1
    span = HOUR * -(-count // _COLUMNS_MAX)
    return start, span, (max(hours) - start) // span + 1
