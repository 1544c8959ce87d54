"""``holdfast uplink status``: links and backlogs of a gateway's routes."""

from typing import Any

import msgspec
import typer

from tools.cli.columns import columns, printable
from tools.cli.uplink.asking import DEFAULT_CONFIG, AsJson, ConfigOption, answer
from tools.cli.utc import duration_of, utc_of

HEADINGS = (
    "route",
    "broker",
    "link",
    "waiting",
    "bytes",
    "oldest",
    "drain",
    "lanes",
    "refused",
    "unproven",
    "received",
    "last acknowledged",
    "problem",
    "last error",
)


def status(config: ConfigOption = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """Show how each route of the gateway is doing, and what waits for it."""
    routes = answer("uplink status", config, "status")
    if as_json:
        typer.echo(msgspec.json.encode(routes).decode())
    else:
        typer.echo(columns([HEADINGS, *map(_row, routes)]) if routes else "there are no routes")


def _row(route: dict[str, Any]) -> tuple[str, ...]:
    link = "stands" if route["stands"] else "up" if route["connected"] else "down"
    return (
        printable(route["name"]),
        printable(route["server"] or route["broker"] or "-"),
        link,
        str(route["backlog_messages"]),
        str(route["backlog_bytes"]),
        duration_of(route["age_s"]) if route["oldest_ms"] else "-",
        _drain(route),
        _lanes(route),
        str(route["refused_messages"]),
        _unproven(route),
        str(route["received_messages"]),
        utc_of(route["acknowledged_ms"]) if route["acknowledged_ms"] else "-",
        printable(route["problem"] or "-"),
        printable(f"{utc_of(route['last_error_ms'])} {route['last_error']}") if route["last_error_ms"] else "-",
    )


def _lanes(route: dict[str, Any]) -> str:
    """The order of the messages, and how many wait in each lane where there are two."""
    if route["order"] == "live_first" or route["backfill_messages"]:
        return f"live {route['live_messages']}, backfill {route['backfill_messages']}"
    return route["order"] or "-"


def _unproven(route: dict[str, Any]) -> str:
    """How much is kept until a receipt, and since when the oldest of it is."""
    if not route["unproven_messages"]:
        return "-"
    since = f" since {utc_of(route['unproven_ms'])}" if route["unproven_ms"] else ""
    return f"{route['unproven_messages']} ({route['unproven_bytes']} B){since}"


def _drain(route: dict[str, Any]) -> str:
    if not route["backlog_messages"]:
        return "-"
    return "never" if route["drain_s"] is None else duration_of(route["drain_s"])
