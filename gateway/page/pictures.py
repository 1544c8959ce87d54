"""Pictures of the status page, as SVG: the way from the devices to the next brokers, and a day of numbers."""

import math
from collections.abc import Mapping, Sequence

from gateway.page.names import shown
from gateway.page.snapshot import Snapshot
from gateway.page.standing import SIGNS, Hop, Standing
from gateway.page.times import clock_of, duration_of, rate_of

HOPS_SHOWN = 24
WIDTH = 340  # of the way, in its own units; a telephone shows it as wide
LINE, TEXT = 17, 12  # distance of lines of text, and the size of its letters
WHY_MAX = 41  # letters beside each other in a box; what is still wider is cut off
BOX_X, BOX_WIDTH, TRUNK_X = 34, 306, 14
BOX_HEIGHT, HOP_HEIGHT, BETWEEN, HOP_BETWEEN = 44, 61, 34, 8
SIDE = 8  # between the edge of a box and its text
RATE_WIDTH = 70
CHART_HEIGHT, DOWN_HEIGHT = 60, 5

Gaps = Mapping[str, tuple[int, str]]
"""The number of ranges that are missing at a hop, by the name of its consumer, and the anchor of the newest one."""


def way(snapshot: Snapshot, gaps: Gaps) -> str:
    """Returns the picture of the way: devices, this gateway, and each route and link."""
    hops = snapshot.hops[:HOPS_SHOWN]
    parts = [
        _box(0, "devices", BOX_HEIGHT, _standing_of_devices(snapshot)),
        _text(BOX_X + SIDE, 5, "Devices", BOX_WIDTH - 2 * SIDE, "strong"),
        _text(BOX_X + SIDE, 5 + LINE, _of_devices(snapshot), BOX_WIDTH - 2 * SIDE),
    ]
    y = BOX_HEIGHT
    received = snapshot.per_s.get("received")
    parts.append(_line(WIDTH // 2, y, WIDTH // 2, y + BETWEEN, Standing.FINE if received else Standing.UNKNOWN))
    rate = "rate not known yet" if received is None else f"{rate_of(received)} come"
    parts.append(_text(WIDTH // 2 + SIDE, y + SIDE, rate, WIDTH // 2 - SIDE - 2))
    parts.append(_gap_mark(BOX_X, y + SIDE, gaps.get("gateway")))
    y += BETWEEN
    stored = sum(store.messages for store in snapshot.stores)
    parts += [
        _box(y, "gateway", BOX_HEIGHT, Standing.BROKEN if snapshot.problems else Standing.FINE),
        _text(BOX_X + SIDE, y + 5, shown(snapshot.gateway, 36), BOX_WIDTH - 2 * SIDE, "strong"),
        _text(BOX_X + SIDE, y + 5 + LINE, f"{stored:,} messages in its store", BOX_WIDTH - 2 * SIDE),
    ]
    y += BOX_HEIGHT
    top = y - BOX_HEIGHT // 2
    for number, hop in enumerate(hops):
        y += HOP_BETWEEN
        parts.append(_hop(y, number, hop, gaps.get(hop.consumer)))
        y += HOP_HEIGHT
    if not hops:
        parts.append(_text(BOX_X + SIDE, y + 4, "It has no route and no link: messages end here.", BOX_WIDTH - SIDE))
        y += LINE + 8
    else:
        trunk = _line(TRUNK_X, top, TRUNK_X, y - HOP_HEIGHT // 2, Standing.UNKNOWN, "trunk")
        parts = [trunk, _line(TRUNK_X, top, BOX_X, top, Standing.UNKNOWN, "trunk"), *parts]
        y += HOP_BETWEEN
        parts += [
            _box(y, "beyond", BOX_HEIGHT, Standing.UNKNOWN),
            _text(BOX_X + SIDE, y + 5, "? Behind the next broker, to the tables", BOX_WIDTH - 2 * SIDE, "strong"),
            _text(BOX_X + SIDE, y + 5 + LINE, _beyond(snapshot), BOX_WIDTH - 2 * SIDE),
        ]
        y += BOX_HEIGHT
    label = "the way of a message: devices, this gateway, its routes and links"
    return f'<svg class="way" viewBox="0 0 {WIDTH} {y + 2}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _beyond(snapshot: Snapshot) -> str:
    landed_ms = [one.landed_ms for one in snapshot.kept]
    if not landed_ms or not min(landed_ms):
        return "not seen from here"
    return f"receipts: the tables have all up to {clock_of(min(landed_ms))}"


def chart(points: Sequence[float], label: str, down: Sequence[float] = (), kind: str = "") -> str:
    """Returns a chart of a day. A slot without a number stays blank, and one of 0 has a line at the bottom.

    Args:
        points: the numbers, the oldest first.
        label: what a reader without eyes for it is told.
        down: for each slot 1.0 if there was no connection; it is marked at the bottom.
        kind: a class of the picture.
    """
    most = max((one for one in points if not math.isnan(one)), default=0.0)
    part = (CHART_HEIGHT - 2) / most if most else 0.0
    area = _steps([None if math.isnan(one) else CHART_HEIGHT - max(1, round(part * one)) for one in points])
    without = _steps([CHART_HEIGHT - DOWN_HEIGHT if one > 0 else None for one in down])
    marks = f'<path class="down" d="{without}"/>' if without else ""
    box = f'viewBox="0 0 {len(points)} {CHART_HEIGHT}" preserveAspectRatio="none"'
    return (
        f'<svg class="chart {kind}" {box} role="img" aria-label="{label}"><path class="area" d="{area}"/>{marks}</svg>'
    )


def _steps(tops: Sequence[int | None]) -> str:
    """Returns the path of columns of width 1 from the bottom up; None leaves one out."""
    path: list[str] = []
    at: int | None = None
    for x, top in enumerate([*tops, None]):
        if top != at:
            if at is not None:
                path.append(f"H{x}" + (f"V{CHART_HEIGHT}Z" if top is None else f"V{top}"))
            else:
                path.append(f"M{x} {CHART_HEIGHT}V{top}")
            at = top
    return "".join(path)


def _hop(y: int, number: int, hop: Hop, gaps: tuple[int, str] | None) -> str:
    rate = "" if hop.per_s is None else rate_of(hop.per_s)
    name_width = BOX_WIDTH - 3 * SIDE - RATE_WIDTH
    title = f"{SIGNS[hop.standing]} {hop.kind} {shown(hop.name, 24)}"
    lines = [
        _line(TRUNK_X, y + HOP_HEIGHT // 2, BOX_X, y + HOP_HEIGHT // 2, hop.standing),
        f'<a href="#hop-{number}">',
        _box(y, "hop", HOP_HEIGHT, hop.standing),
        _text(BOX_X + SIDE, y + 4, title, name_width, "strong"),
        _text(WIDTH - SIDE - RATE_WIDTH, y + 4, rate, RATE_WIDTH, "end"),
        _text(BOX_X + SIDE, y + 4 + LINE, shown(hop.why, WHY_MAX), BOX_WIDTH - 2 * SIDE),
        "</a>",
        _text(BOX_X + SIDE, y + 4 + 2 * LINE, _waiting(hop), name_width if gaps else BOX_WIDTH - 2 * SIDE),
        _gap_mark(WIDTH - SIDE - RATE_WIDTH - 30, y + 4 + 2 * LINE, gaps, RATE_WIDTH + 30),
    ]
    return "".join(lines)


def _waiting(hop: Hop) -> str:
    if not hop.waiting:
        return "nothing waits"
    if math.isinf(hop.drain_s):
        return f"{hop.waiting:,} wait"
    return f"{hop.waiting:,} wait, gone in {duration_of(hop.drain_s)}"


def _gap_mark(x: float, y: float, gaps: tuple[int, str] | None, width: int = 120) -> str:
    if gaps is None:
        return ""
    count, anchor = gaps
    text = f"{count} gap{'s' if count > 1 else ''}"
    return f'<a class="gap" href="#{anchor}">{_text(x, y, text, width, "end" if width != 120 else "")}</a>'


def _standing_of_devices(snapshot: Snapshot) -> Standing:
    counts = snapshot.counts
    if counts[Standing.ODD]:
        return Standing.ODD
    return Standing.FINE if counts[Standing.FINE] and not counts[Standing.UNKNOWN] else Standing.UNKNOWN


def _of_devices(snapshot: Snapshot) -> str:
    silent = snapshot.counts[Standing.ODD]
    told = f"{snapshot.connected_devices:,} of {sum(snapshot.counts.values()):,} connected"
    return f"{told}, {silent:,} unusually silent" if silent else told


def _box(y: int, kind: str, height: int, standing: Standing) -> str:
    place = f'x="{BOX_X}" y="{y + 1}" width="{BOX_WIDTH - 1}" height="{height - 2}" rx="6"'
    return f'<rect class="{kind} {standing.value}" {place}/>'


def _line(x1: int, y1: int, x2: int, y2: int, standing: Standing, kind: str = "") -> str:
    return f'<path class="line {standing.value} {kind}" d="M{x1} {y1}L{x2} {y2}"/>'


def _text(x: float, y: float, text: str, width: float, kind: str = "") -> str:
    """Returns a line of text in a window of its own, so that no name covers what is beside it."""
    inside = f'x="{width}" text-anchor="end"' if kind == "end" else 'x="0"'
    text_class = f' class="{kind}"' if kind else ""
    window = f'<svg x="{x}" y="{y}" width="{width}" height="{LINE}">'
    return f'{window}<text {inside} y="{TEXT + 1}"{text_class}>{text}</text></svg>'
