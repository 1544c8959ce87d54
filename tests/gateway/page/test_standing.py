"""A route or link is fine only if something shows it; what is not known is unknown."""

import time
from dataclasses import replace
from typing import Any

import pytest

from gateway.counters import LinkStatus, RouteAbout, RouteState
from gateway.page.standing import Standing, hop_of_link, hop_of_route

NOW_MS = int(time.time() * 1000)
LINK = LinkStatus(
    "site-a-to-b",
    "session/site-a-to-b",
    "site-a",
    is_dialled_here=False,
    server="",
    zone="default",
    hops="multi",
    mode="active-active",
    connected=True,
    since_ms=NOW_MS,
    set_aside="",
    waiting_messages=0,
    waiting_bytes=0,
    is_counted=True,
    wanted=1,
    asked=1,
)


@pytest.mark.parametrize(
    ("fields", "about", "standing", "why"),
    [
        ({}, RouteAbout(), Standing.UNKNOWN, "it has not connected yet"),
        (
            {},
            RouteAbout("b", "it is no longer configured"),
            Standing.BROKEN,
            "not connected: it is no longer configured",
        ),
        (
            {},
            RouteAbout("b", "no window", "no window is open"),
            Standing.UNKNOWN,
            "waits, as configured: no window is open",
        ),
        (
            {"last_error": "cannot connect: refused"},
            RouteAbout(),
            Standing.BROKEN,
            "not connected: cannot connect: refused",
        ),
        ({"connected": True}, RouteAbout(), Standing.UNKNOWN, "connected, nothing acknowledged yet"),
        ({"connected": True, "acknowledged_ms": NOW_MS}, RouteAbout(), Standing.FINE, "connected, last acknowledged"),
        (
            {"connected": True, "acknowledged_ms": NOW_MS, "stands": "a message is too large"},
            RouteAbout(),
            Standing.BROKEN,
            "too large",
        ),
        ({"connected": True, "acknowledged_ms": NOW_MS, "fault": "a fault"}, RouteAbout(), Standing.BROKEN, "a fault"),
        ({"login_refused": "bad user name"}, RouteAbout(), Standing.BROKEN, "bad user name"),
        (
            {
                "connected": True,
                "acknowledged_ms": NOW_MS - 90_000,
                "backlog_messages": 5,
                "oldest_ms": NOW_MS - 90_000,
            },
            RouteAbout(),
            Standing.ODD,
            "nothing was acknowledged for 1 min 30 s",
        ),
        (
            {"connected": True, "acknowledged_ms": NOW_MS, "refused_messages": 2},
            RouteAbout(),
            Standing.ODD,
            "are set aside",
        ),
        (
            {"connected": True, "acknowledged_ms": NOW_MS, "receive_note": "at QoS 0"},
            RouteAbout(),
            Standing.ODD,
            "at QoS 0",
        ),
    ],
)
def test_route_stands_as_its_state_shows(
    fields: dict[str, Any], about: RouteAbout, standing: Standing, why: str
) -> None:
    hop = hop_of_route(RouteState("central", **fields), about, None, NOW_MS)
    assert hop.standing is standing
    assert why in hop.why


@pytest.mark.parametrize(
    ("fields", "standing", "why"),
    [
        ({}, Standing.FINE, "connected since"),
        ({"connected": False, "problem": "the neighbour is not connected"}, Standing.BROKEN, "down since"),
        ({"set_aside": "it closes a circle"}, Standing.ODD, "it closes a circle"),
        ({"refused": ("'a' (denied)",)}, Standing.ODD, "refuses 1 topic filters"),
    ],
)
def test_link_stands_as_its_status_shows(fields: dict[str, Any], standing: Standing, why: str) -> None:
    hop = hop_of_link(replace(LINK, **fields), NOW_MS)
    assert hop.standing is standing
    assert why in hop.why
