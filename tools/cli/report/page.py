"""The report as one HTML page that needs no other file, no script and no network."""

from datetime import UTC, datetime
from html import escape
from pathlib import Path
from string import Template

from cloud import Result
from tools.cli.report.figures import Cell, Figures, HeatMap

_PAGE = Path(__file__).with_name("page.html")
_COMPLETE_HUE, _EMPTY_HUE = 140, 0  # green, and red
_BARS_HEIGHT = 100


def render(title: str, figures: Figures, made_at: datetime) -> str:
    """Returns the page. All texts of the tables are escaped: any device may choose its own name."""
    return Template(_PAGE.read_text()).substitute(
        title=escape(title),
        made=f"Made at {_text(made_at)}. All times are UTC.",
        totals=_totals(figures.totals),
        heat_map=_heat_map(figures.heat_map),
        gaps=_rows(figures.gaps, "No message is missing."),
        rates=_rates(figures),
        latency=_rows(figures.latency, "No message has the times of two hops.", "Seconds, by the clocks of both ends."),
        devices=_rows(figures.devices, "No device has sent a reading."),
    )


def _totals(totals: Result) -> str:
    tiles = zip(totals.columns, totals.rows[0], strict=True)
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in tiles)


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
        + "".join(_cell(name, heat_map, place, cells.get(place)) for place in range(heat_map.columns))
        + "</tr>"
        for name, cells in heat_map.rows.items()
    )
    last = heat_map.start + heat_map.span * heat_map.columns
    hours = heat_map.span.total_seconds() / 3600
    remark = f"{_text(heat_map.start)} to {_text(last)}, {hours:.0f} h a cell: green is complete, red has nothing."
    return f'<p>{remark}</p><div class="wide"><table class="map">{rows}</table></div>'


def _cell(name: str, heat_map: HeatMap, place: int, cell: Cell | None) -> str:
    if cell is None or not cell.expected:
        return "<td></td>"
    share = cell.arrived / cell.expected
    hue = _EMPTY_HUE + (_COMPLETE_HUE - _EMPTY_HUE) * share if share == 1 else 50 * share
    at = _text(heat_map.start + heat_map.span * place)
    told = f"{escape(name)}, {at}: {cell.arrived} of {cell.expected}"
    return f'<td style="background:hsl({hue:.0f} 65% 45%)" title="{told}"></td>'


def _rates(figures: Figures) -> str:
    if figures.rates_start is None:
        return "<p>There are no readings.</p>"
    highest = max(figures.rates)
    at = [figures.rates_start + figures.rates_span * place for place in range(len(figures.rates) + 1)]
    bars = "".join(
        f'<rect x="{place + 0.05:.2f}" y="{_BARS_HEIGHT - height:.2f}" width="0.9" height="{height:.2f}">'
        f"<title>{_text(at[place])}: {count} readings</title></rect>"
        for place, count in enumerate(figures.rates)
        for height in [_BARS_HEIGHT * count / highest]
    )
    box = f"0 0 {len(figures.rates)} {_BARS_HEIGHT}"
    hours = figures.rates_span.total_seconds() / 3600
    return (
        f"<p>Readings in {hours:.0f} h; the highest bar is {_text(highest)}.</p>"
        f'<svg viewBox="{box}" preserveAspectRatio="none" role="img" aria-label="readings over time">{bars}</svg>'
        f'<div class="ends"><span>{_text(at[0])}</span><span>{_text(at[-1])}</span></div>'
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
        case float():
            return f"{value:,.3f}"
        case _:
            return escape(str(value))
