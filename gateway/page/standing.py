"""How a route, a link or a store stands: fine only if something shows that, and unknown where nothing does."""

import enum
import math
from typing import NamedTuple

from gateway.counters import LinkStatus, RouteAbout, RouteState
from gateway.page.times import duration_of, moment_of

ACKNOWLEDGES_WITHIN_MS = 60_000  # while messages wait


class Standing(enum.Enum):
    """How something stands, the best last."""

    BROKEN = "broken"
    ODD = "odd"
    UNKNOWN = "unknown"
    FINE = "fine"


SIGNS = {Standing.BROKEN: "✕", Standing.ODD: "!", Standing.UNKNOWN: "?", Standing.FINE: "✓"}


class Hop(NamedTuple):
    """A way on from this gateway, or to a neighbour that dials.

    ``kind`` is "route" or "link", ``peer`` the broker or the neighbour, ``why`` why it stands as it does. ``waiting``
    is the number of messages that it has not acknowledged, ``waiting_bytes`` their bytes, ``oldest_ms`` when the first
    gateway accepted the oldest of them (Unix time, 0: not known). ``per_s`` is how many messages the backlog has lost
    a second in the last minute, None if that is not known, and ``drain_s`` how long it lasts, infinite if it does not
    fall. ``consumer`` is its name in the table of what was dropped.
    """

    kind: str
    name: str
    consumer: str
    peer: str
    standing: Standing
    why: str
    waiting: int
    waiting_bytes: int
    oldest_ms: int = 0
    per_s: float | None = None
    drain_s: float = math.inf
    refused: int = 0


def hop_of_route(state: RouteState, about: RouteAbout, link: LinkStatus | None, now_ms: int) -> Hop:
    """Returns how a route stands.

    Args:
        state: its state.
        about: what it says of itself.
        link: the link that it dials, if it leads to a neighbour.
    """
    standing, why = _of_route(state, about, now_ms)
    if link is not None and link.connected and standing in (Standing.FINE, Standing.UNKNOWN):
        found, why_link = _of_link(link, now_ms)
        standing, why = (standing, why) if found is Standing.FINE else (found, why_link)
    return Hop(
        "route",
        state.name,
        consumer_of(state),
        state.server or about.broker,
        standing,
        why,
        state.backlog_messages,
        state.backlog_bytes,
        state.oldest_ms,
        state.arrived_per_s,
        state.drain_s,
        state.refused_messages,
    )


def hop_of_link(status: LinkStatus, now_ms: int) -> Hop:
    """Returns how a link stands that a neighbour dials."""
    standing, why = _of_link(status, now_ms)
    return Hop(
        "link",
        status.name or status.neighbour,
        status.consumer,
        status.neighbour,
        standing,
        why,
        status.waiting_messages,
        status.waiting_bytes,
    )


def consumer_of(route: RouteState) -> str:
    """Returns the name of a route's consumer."""
    return f"route/{route.name}"


def _of_route(state: RouteState, about: RouteAbout, now_ms: int) -> tuple[Standing, str]:
    if state.fault or state.login_refused:
        return Standing.BROKEN, state.fault or state.login_refused
    if not state.connected:
        if about.waits_for:
            return Standing.UNKNOWN, f"waits, as configured: {about.waits_for}"
        why = about.problem or state.last_error
        return (Standing.BROKEN, f"not connected: {why}") if why else (Standing.UNKNOWN, "it has not connected yet")
    if state.stands:
        return Standing.BROKEN, f"connected, and nothing goes out: {state.stands}"
    last = f"last acknowledged {moment_of(state.acknowledged_ms, now_ms)}" if state.acknowledged_ms else ""
    since_ms = max(state.acknowledged_ms, state.oldest_ms)
    if state.backlog_messages and not state.arrived_per_s and now_ms - since_ms > ACKNOWLEDGES_WITHIN_MS:
        waited = duration_of((now_ms - since_ms) / 1000)
        return Standing.ODD, f"connected, and nothing was acknowledged for {waited}"
    if noted := state.receive_problem or state.receive_note or state.statement_note:
        return Standing.ODD, f"connected: {noted}"
    if state.refused_messages:
        return Standing.ODD, f"connected; {state.refused_messages:,} messages that its broker refused are set aside"
    if not last:
        return Standing.UNKNOWN, "connected, nothing acknowledged yet"
    return Standing.FINE, f"connected, {last}"


def _of_link(status: LinkStatus, now_ms: int) -> tuple[Standing, str]:
    since = f" since {moment_of(status.since_ms, now_ms)}" if status.since_ms else ""
    if not status.connected:
        return Standing.BROKEN, f"down{since}: {status.problem}"
    if status.set_aside:
        return Standing.ODD, f"connected{since}, and carries no messages: {status.set_aside}"
    if status.refused:
        return Standing.ODD, f"connected{since}; the neighbour refuses {len(status.refused):,} topic filters"
    return Standing.FINE, f"connected{since}"
