"""The sections of the status page as HTML. All names and sentences are escaped here, by ``names``."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from gateway.page import pictures
from gateway.page.history import down_of, waiting_of
from gateway.page.names import SHOWN_MAX, name, shown, words
from gateway.page.snapshot import DeviceFacts, Missing, Snapshot, StoreFacts
from gateway.page.standing import SIGNS, Hop, Standing
from gateway.page.times import bytes_of, clock_of, duration_of, rate_of
from gateway.store import consumer_names, drops

CHARTS_SHOWN = 6  # of what waits for routes
LINES_SHOWN = 20  # of problems, and of notes
DAY_MS = 86_400_000
REASONS = {
    drops.DAMAGED: "the message is corrupt in the store",
    drops.EXPIRED: "it was too old: its expiry or the route's max_age_s has passed",
    drops.EVICTED: "a limit was reached, and the oldest messages were dropped",
    drops.REJECTED: "it was refused",
    drops.FILTERED: "an access rule or a condition of a link does not let it through",
    drops.OVERSIZE: "it is larger than the client takes",
    drops.ENDED: "it waited for a session, group or route that has ended",
    drops.UNROUTED: "the neighbour that wanted it was not connected",
    drops.UNPROVEN: "the next broker has it; no receipt came before the gateway gave its copy up",
}
WORDS_OF_DEVICES = {Standing.FINE: "in rhythm", Standing.ODD: "silent", Standing.UNKNOWN: "unknown"}
WHEN_FULL = {
    "discard_old": "the oldest messages are dropped then",
    "reject_incoming": "new messages are refused then",
    "flow_control": "publishers wait then",
}
HOPS = {
    drops.GATEWAY: "from the device to this gateway",
    drops.RETAINED: "in this gateway: not kept for later subscribers",
    drops.EVERYBODY_ELSE: "not known: there were too many ranges to keep each",
}


def verdict(snapshot: Snapshot) -> str:
    """Returns what matters most. It is good only if all that is shown is known to be fine."""
    broken = [one for one in snapshot.hops if one.standing is Standing.BROKEN]
    odd = [one for one in snapshot.hops if one.standing is Standing.ODD]
    unknown = [one for one in snapshot.hops if one.standing is Standing.UNKNOWN]
    silent, unsure = snapshot.counts[Standing.ODD], snapshot.counts[Standing.UNKNOWN]
    lately = _missing_lately(snapshot)
    remarks = list(_remarks(broken, odd, unknown, silent, lately))
    remarks += [] if snapshot.missing is not None else ["what is missing could not be read"]
    if snapshot.problems or broken:
        kind, headline = Standing.BROKEN, "Something is wrong"
    elif odd or silent or lately:
        kind, headline = Standing.ODD, "Something is unusual"
    elif unknown or unsure or snapshot.missing is None or not snapshot.per_s:
        kind, headline = Standing.UNKNOWN, "Nothing is known to be wrong"
        remarks += [f"{_count(unsure, 'device')} whose rhythm is not known yet"] if unsure else []
    else:
        ways = f", {_count(len(snapshot.hops), 'way')} on" if snapshot.hops else ""
        kind, headline = Standing.FINE, "All is well at this gateway"
        remarks.append(
            f"{_count(snapshot.counts[Standing.FINE], 'device')} in their rhythm{ways}, nothing missing today"
        )
    told = "".join(f"<p>{words(remark[:1].upper() + remark[1:])}.</p>" for remark in remarks)
    lines = _lines(snapshot.problems) if snapshot.problems else ""
    return f'<div class="verdict {kind.value}"><p class="headline">{SIGNS[kind]} {headline}</p>{told}{lines}</div>'


def _remarks(
    broken: Sequence[Hop], odd: Sequence[Hop], unknown: Sequence[Hop], silent: int, lately: int
) -> Iterator[str]:
    for hop in (*broken, *odd)[:LINES_SHOWN]:
        yield f"{hop.kind} {hop.name[:SHOWN_MAX]}: {hop.why}"
    if silent:
        yield f"{_count(silent, 'device')} unusually silent"
    if lately:
        yield f"{_count(lately, 'message')} missing since yesterday, with the reasons below"
    if unknown:
        yield f"{_count(len(unknown), 'way')} on of which nothing is known now"


def tiles(snapshot: Snapshot) -> str:
    """Returns the numbers."""
    per_s = snapshot.per_s
    waiting = sum(hop.waiting for hop in snapshot.hops)
    main = snapshot.stores[0]
    found = {
        "clients connected": f"{snapshot.connections:,}",
        "messages come": rate_of(per_s["received"]) if per_s else "?",
        "are stored": rate_of(per_s["stored"]) if per_s else "?",
        "go to clients": rate_of(per_s["sent"]) if per_s else "?",
        "go on over routes": rate_of(sum(hop.per_s or 0.0 for hop in snapshot.hops)),
        "wait for routes and links": f"{waiting:,}",
        "room in the store": bytes_of(main.left_bytes),
        "it ends": _ends(main),
    }
    return "".join(f"<div><dt>{label}</dt><dd>{value}</dd></div>" for label, value in found.items())


def day(snapshot: Snapshot) -> str:
    """Returns the charts of the last 24 hours."""
    history = snapshot.history
    received, dropped = history.points("received"), history.points("dropped")
    parts = [
        _chart("Messages that came", "", f"{_most(received) / 300:,.1f} a second", received, "came"),
        _chart("Messages dropped", "", f"{_most(dropped):,.0f} in five minutes", dropped, "dropped"),
    ]
    routes = [hop for hop in snapshot.hops if hop.kind == "route"]
    for hop in routes[:CHARTS_SHOWN]:
        waiting, down = history.points(waiting_of(hop.name)), history.points(down_of(hop.name))
        without = sum(300 for one in down if one > 0)
        remark = f", with times without a connection: {duration_of(without)} in all" if without else ""
        label = f"{_most(waiting):,.0f}{remark}"
        parts.append(_chart("Messages that wait for", f" {name(hop.name)}", label, waiting, "waits", down))
    if len(routes) > CHARTS_SHOWN:
        parts.append(f"<p>{len(routes) - CHARTS_SHOWN:,} more routes are left out.</p>")
    begin = clock_of(1000 * history.began_s)[5:16]
    ends = f'<div class="ends"><span>{begin}</span><span>{clock_of(1000 * snapshot.at_s)[5:16]}</span></div>'
    return "".join(parts) + ends + "<p>What is blank is not known: the gateway did not run then.</p>"


def _chart(title: str, of: str, most: str, points: Sequence[float], kind: str, down: Sequence[float] = ()) -> str:
    label = f"{title}, over a day"
    chart = pictures.chart(points, label, down, kind)
    return f"<figure><figcaption>{title}{of}; at most {most}</figcaption>{chart}</figure>"


def _most(points: Iterable[float]) -> float:
    return max((one for one in points if not math.isnan(one)), default=0.0)


def hops(snapshot: Snapshot) -> str:
    """Returns the table of routes and links."""
    rows = "".join(
        f'<tr id="hop-{number}"><td>{_standing(hop.standing)}</td><td>{hop.kind} {name(hop.name)}</td>'
        f"<td>{name(hop.peer)}</td><td class=why>{words(hop.why)}</td><td class=number>{hop.waiting:,}</td>"
        f"<td>{clock_of(hop.oldest_ms) if hop.oldest_ms and hop.waiting else ''}</td></tr>"
        for number, hop in enumerate(snapshot.hops)
    )
    if not rows:
        return "<p>There is no route and no neighbour.</p>"
    return _table(("", "way on", "to", "because", "waits", "since"), rows)


def receipts(snapshot: Snapshot) -> str:
    """Returns the table of what routes keep until a receipt from the tables."""
    rows = "".join(
        f"<tr><td>route {name(one.route)}</td>"
        f"<td>{clock_of(one.landed_ms) if one.landed_ms else '? no receipt says so'}</td>"
        f"<td class=number>{one.messages:,}</td><td class=number>{bytes_of(one.size)}</td>"
        f"<td>{clock_of(one.oldest_ms) if one.messages and one.oldest_ms else ''}</td>"
        f"<td class=number>{one.sent_again:,}</td></tr>"
        for one in snapshot.kept
    )
    if not rows:
        return "<p>No route waits for receipts: what becomes of messages behind the next broker is not known here.</p>"
    return _table(("way on", "the tables have all up to", "kept", "size", "since", "sent again"), rows)


def devices(snapshot: Snapshot) -> str:
    """Returns the devices of most concern, and how many there are of each kind."""
    counts, total = snapshot.counts, sum(snapshot.counts.values())
    if not total:
        return "<p>No device has connected yet.</p>"
    told = (
        f"{counts[Standing.FINE]:,} in their rhythm, {counts[Standing.ODD]:,} unusually silent, "
        f"{counts[Standing.UNKNOWN]:,} of unknown rhythm."
    )
    more = total - len(snapshot.devices)
    left = f' {more:,} more are on <a href="/devices">the page of all devices</a>.' if more else ""
    return f"<p>{told}{left}</p>{device_table(snapshot.devices)}"


def device_table(found: Iterable[DeviceFacts]) -> str:
    """Returns a table of devices."""
    rows = "".join(
        f"<tr><td>{_standing(one.standing, WORDS_OF_DEVICES)}</td><td>{name(one.name)}</td>"
        f"<td>{clock_of(one.heard_ms) if one.heard_ms else 'not since the start'}</td>"
        f"<td>{duration_of(one.usual_s) if one.usual_s else '?'}</td>"
        f"<td>{'yes' if one.connected else f'no, since {clock_of(one.seen_ms)}'}</td></tr>"
        for one in found
    )
    return _table(("", "device", "last message", "usual pause", "connected"), rows)


def missing(snapshot: Snapshot) -> str:
    """Returns what is missing, newest first; each range opens to its hop, reason and identities."""
    found = snapshot.missing
    if found is None:
        return "<p>? What is missing could not be read from the store.</p>"
    if not found:
        return "<p>No range of a message is noted as missing in the store.</p>"
    return "".join(f'<details id="{anchor_of(one)}-range">{_range(one)}</details>' for one in found)


def _range(one: Missing) -> str:
    dropped = one.dropped
    count = _count(dropped.messages, "message") if dropped.messages else "? messages"
    head = f"{count} of {name(dropped.origin or dropped.publisher or 'several publishers')}: {shown(dropped.reason)}"
    rows = {
        "hop": hop_name(dropped.consumer),
        "reason": f"{shown(dropped.reason)}: {REASONS.get(dropped.reason, 'not known')}",
        "range": _identities(dropped),
        "publisher": name(dropped.publisher) if dropped.publisher else "not known",
        "between": f"{clock_of(dropped.since_ms)} and {clock_of(dropped.until_ms)}",
    }
    if one.stream:
        rows["stream"] = name(one.stream)
    listed = "".join(f"<dt>{label}</dt><dd>{value}</dd>" for label, value in rows.items())
    return (
        f"<summary>{clock_of(dropped.until_ms)[5:16]} {head}</summary>"
        f'<dl class="facts" id="{anchor_of(one)}">{listed}</dl>'
    )


def _identities(dropped: drops.Dropped) -> str:
    if not dropped.last:
        return "not known: the messages had no identity, or were only counted"
    numbers = f"{dropped.first:,}" if dropped.first == dropped.last else f"{dropped.first:,} to {dropped.last:,}"
    return f"{name(dropped.origin)}, epoch {dropped.epoch:08x}, seq {numbers}"


def hop_name(consumer: str) -> str:
    """Returns which hop a consumer stands for, as HTML."""
    if consumer in HOPS:
        return HOPS[consumer]
    rest = consumer.removeprefix(consumer_names.BACKFILL)
    for start, text in (
        ("route/", "from this gateway over route"),
        (consumer_names.SESSION, "from this gateway to client"),
        (consumer_names.GROUP, "from this gateway to share group"),
    ):
        if rest.startswith(start):
            return f"{text} {name(rest.removeprefix(start))}"
    return f"from this gateway to {name(rest)}"


def anchor_of(one: Missing) -> str:
    """Returns the anchor of a range: the same while it grows."""
    dropped = one.dropped
    key = (
        one.stream,
        dropped.reason,
        dropped.consumer,
        dropped.publisher,
        dropped.origin,
        dropped.epoch,
        dropped.first,
    )
    return f"gap-{hash(key) & 0xFFFFFFFF:08x}"


def gaps_of(snapshot: Snapshot) -> dict[str, tuple[int, str]]:
    """Returns how many ranges are missing at each hop of the picture, and the anchor of the newest."""
    found: dict[str, tuple[int, str]] = {}
    for one in snapshot.missing or ():
        consumer = one.dropped.consumer.removeprefix(consumer_names.BACKFILL)
        count, anchor = found.get(consumer, (0, anchor_of(one)))
        found[consumer] = count + 1, anchor
    return found


def room(snapshot: Snapshot) -> str:
    """Returns the table of the stores: how large they are, and when their room ends."""
    rows = "".join(
        f"<tr><td>{name(one.stream) if one.stream else 'default'}</td><td class=number>{one.messages:,}</td>"
        f"<td class=number>{bytes_of(one.size)}</td><td class=number>{bytes_of(one.left_bytes)}</td>"
        f"<td>{_ends(one)}</td><td>{WHEN_FULL[one.when_full]}</td></tr>"
        for one in snapshot.stores
    )
    return _table(("stream", "messages", "size", "room left", "it ends", "what happens"), rows)


def _ends(store: StoreFacts) -> str:
    if store.is_full or not store.left_bytes:
        return "it is full"
    if store.ends_s is None:
        return "? not known yet"
    return "not at this pace" if math.isinf(store.ends_s) else f"in {duration_of(store.ends_s)}"


def _missing_lately(snapshot: Snapshot) -> int:
    since_ms = 1000 * snapshot.at_s - DAY_MS
    return sum(max(1, one.dropped.messages) for one in snapshot.missing or () if one.dropped.until_ms > since_ms)


def _standing(standing: Standing, said: dict[Standing, str] | None = None) -> str:
    word = (said or {}).get(standing, standing.value)
    return f'<span class="standing {standing.value}">{SIGNS[standing]} {word}</span>'


def _table(head: Sequence[str], rows: str) -> str:
    cells = "".join(f"<th>{one}</th>" for one in head)
    return f'<div class="wide"><table class="rows"><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table></div>'


def _lines(lines: Sequence[str]) -> str:
    told = "".join(f"<li>{words(one)}</li>" for one in lines[:LINES_SHOWN])
    more = f"<li>{len(lines) - LINES_SHOWN:,} more</li>" if len(lines) > LINES_SHOWN else ""
    return f"<ul>{told}{more}</ul>"


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _way(snapshot: Snapshot) -> str:
    return pictures.way(snapshot, gaps_of(snapshot))


def _notes(snapshot: Snapshot) -> str:
    return _lines(snapshot.notes) if snapshot.notes else "<p>There is nothing to note.</p>"


def _about(snapshot: Snapshot) -> str:
    return f"Version {shown(snapshot.version)}, running since {clock_of(1000 * snapshot.since_s)}."


Section = Callable[[Snapshot], str]
SECTIONS: dict[str, tuple[Section, float]] = {
    "verdict": (verdict, 0.0),
    "tiles": (tiles, 0.0),
    "way": (_way, 0.0),
    "day": (day, 30.0),
    "hops": (hops, 0.0),
    "receipts": (receipts, 5.0),
    "devices": (devices, 5.0),
    "missing": (missing, 0.0),
    "room": (room, 10.0),
    "notes": (_notes, 0.0),
    "about": (_about, 0.0),
}
"""The sections of the page by their ids: what makes each, and for how many seconds it stays to save bytes."""
