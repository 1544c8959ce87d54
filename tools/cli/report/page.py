"""The report as one HTML page that needs no other file, no script and no network."""

from datetime import UTC, datetime
from html import escape as escape_html
from pathlib import Path
from string import Template

from cloud import Result
from gateway.page import LOOK
from tools.cli.columns import printable
from tools.cli.report.figures import OLDEST, SILENCE, Cell, Figures, HeatMap, Listing, Spans
from tools.cli.report.verdict import tell, written

_PAGE = Path(__file__).with_name("page.html")
_COMPLETE_HUE, _EMPTY_HUE = 140, 0  # green, and red
_BARS_HEIGHT = 100
_SILENCES_MAX = 3


def escape(text: str) -> str:
    """Returns a text as it may stand in the page, with ``?`` in place of control characters."""
    return escape_html(printable(text))


def render(title: str, figures: Figures, made_at: datetime) -> str:
    """Returns the page. All texts of the tables are escaped: any device may choose its own name."""
    return Template(_PAGE.read_text()).substitute(
        look=LOOK.read_text("utf-8"),
        title=escape(title),
        made=f"Made at {_text(made_at)}. All times are UTC.",
        verdict=_verdict(figures),
        totals=_totals(figures.totals),
        heat_map=_heat_map(figures.heat_map),
        gaps=_listing(figures.gaps, "No message is missing."),
        rates=_rates(figures.rates),
        latency=_rows(
            _with_durations(figures.latency),
            "No message has the times of two hops.",
            "By the clocks of both ends; a time below zero tells that they differ.",
        ),
        devices=_listing(figures.devices, "No device has sent a reading."),
        left_out=_summary(figures),
    )


def _verdict(figures: Figures) -> str:
    verdict = tell(figures.verdict)
    remarks = "".join(f"<p>{escape(remark)}</p>" for remark in verdict.remarks)
    return (
        f'<section class="verdict {verdict.kind}"><p class="headline">{escape(verdict.headline)}</p>{remarks}</section>'
    )


def _summary(figures: Figures) -> str:
    """Says all that the page does not show."""
    parts = []
    for listing, what in ((figures.gaps, "gaps"), (figures.devices, "devices")):
        if listing.left_out:
            parts.append(f"{listing.left_out:,} of {listing.left_out + len(listing.rows.rows):,} {what}")
    if figures.heat_map and figures.heat_map.left_out:
        parts.append(f"{figures.heat_map.left_out:,} rows of the map of completeness")
    if figures.heat_map and figures.heat_map.outside.messages:
        count, names = figures.heat_map.outside
        parts.append(
            f"{count:,} messages on the axes of time, because their times lie over {OLDEST.days} days before the first "
            f"landing, or after the last one; these clocks are likely to be wrong: {', '.join(names)}"
        )
    if figures.verdict.quarantined:
        parts.append(f"{figures.verdict.quarantined:,} messages in quarantine, which the table of this name explains")
    if not parts:
        return "<p>Nothing is left out.</p>"
    return f"<ul>{''.join(f'<li>{escape(part)}</li>' for part in parts)}</ul>"


class _Duration(float):
    """Seconds that are written for people."""


def _with_durations(latency: Result) -> Result:
    rows = [tuple(_Duration(value) if isinstance(value, float) else value for value in row) for row in latency.rows]
    return Result(latency.columns, rows)


def _totals(totals: Result) -> str:
    tiles = zip(totals.columns, totals.rows[0], strict=True)
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in tiles)


def _listing(listing: Listing, without: str) -> str:
    return _rows(listing.rows, without, _left_out(listing.left_out))


def _left_out(count: int) -> str:
    return f"{count:,} more {'is' if count == 1 else 'are'} left out." if count else ""


def _rows(result: Result, without: str, remark: str = "") -> str:
    if not result.rows:
        return f"<p>{without}</p>"
    numeric = [any(isinstance(row[place], int | float) for row in result.rows) for place in range(len(result.columns))]
    kinds = [' class="number"' if number else "" for number in numeric]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, result.columns, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{_text(value)}</td>" for kind, value in zip(kinds, row, strict=True)) + "</tr>"
        for row in result.rows
    )
    table = f'<div class="wide"><table class="rows"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    return f"<p>{remark}</p>{table}" if remark else table


def _heat_map(heat_map: HeatMap | None) -> str:
    if heat_map is None:
        return "<p>No message has readings.</p>"
    rows = "".join(
        f"<tr><th>{escape(name)}</th>"
        + "".join(_cell(name, heat_map.spans, place, cells.get(place)) for place in range(len(heat_map.spans.starts)))
        + "</tr>"
        for name, cells in heat_map.rows.items()
    )
    first, last = _ends(heat_map.spans)
    hours = f"{_hours(heat_map.spans)} a cell: green is complete, red has nothing."
    remarks = [f"{first} to {last}, {hours}", _silences(heat_map.spans), _left_out(heat_map.left_out)]
    return f'<p>{" ".join(filter(None, remarks))}</p><div class="wide"><table class="map">{rows}</table></div>'


def _ends(spans: Spans) -> tuple[str, str]:
    return _text(spans.starts[0]), _text(spans.starts[-1] + spans.length)


def _hours(spans: Spans) -> str:
    return f"{spans.length.total_seconds() / 3600:.0f} h"


def _silences(spans: Spans) -> str:
    """Says that the axis of time has steps, if it has."""
    places = [place for place in range(len(spans.starts)) if spans.follows_silence(place)]
    if not places:
        return ""
    ends = [f"{_text(spans.starts[place - 1] + spans.length)} to {_text(spans.starts[place])}" for place in places]
    longest = f"A line stands for more than {SILENCE.days} days with nothing: {', '.join(ends[:_SILENCES_MAX])}"
    return longest + (f", and {len(ends) - _SILENCES_MAX} more." if len(ends) > _SILENCES_MAX else ".")


def _cell(name: str, spans: Spans, place: int, cell: Cell | None) -> str:
    silence = ' class="silence"' if spans.follows_silence(place) else ""
    if cell is None or not cell.expected:
        return f"<td{silence}></td>"
    share = cell.arrived / cell.expected
    hue = _EMPTY_HUE + (_COMPLETE_HUE - _EMPTY_HUE) * share if share == 1 else 50 * share
    told = f"{escape(name)}, {_text(spans.starts[place])}: {cell.arrived} of {cell.expected}"
    return f'<td{silence} style="background-color:hsl({hue:.0f} 65% 45%)" title="{told}"></td>'


def _rates(rates: tuple[Spans, list[int]] | None) -> str:
    if rates is None:
        return "<p>There are no readings.</p>"
    spans, counts = rates
    highest, (first, last) = max(counts), _ends(spans)
    bars = "".join(
        f'<rect x="{place + 0.05:.2f}" y="{_BARS_HEIGHT - height:.2f}" width="0.9" height="{height:.2f}">'
        f"<title>{_text(spans.starts[place])}: {count} readings</title></rect>"
        for place, count in enumerate(counts)
        for height in [_BARS_HEIGHT * count / highest]
    )
    lines = "".join(
        f'<line x1="{place}" x2="{place}" y1="0" y2="{_BARS_HEIGHT}"/>'
        for place in range(len(counts))
        if spans.follows_silence(place)
    )
    box = f'viewBox="0 0 {len(counts)} {_BARS_HEIGHT}" preserveAspectRatio="none"'
    remarks = [f"Readings in {_hours(spans)}; the highest bar is {_text(highest)}.", _silences(spans)]
    return (
        f"<p>{' '.join(filter(None, remarks))}</p>"
        f'<svg {box} role="img" aria-label="readings over time">{bars}{lines}</svg>'
        f'<div class="ends"><span>{first}</span><span>{last}</span></div>'
    )


def _text(value: object) -> str:
    match value:
        case None:
            return ""
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
        case bool():
            return str(value).lower()
        case int():
            return f"{value:,}"
        case _Duration():
            return written(value)
        case float():
            return f"{value:,.3f}"
        case _:
            return escape(str(value))
