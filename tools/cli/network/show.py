"""``holdfast network show``: the links of a gateway that runs, and what is wanted over them."""

import time
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer

from tools.cli.columns import columns, printable
from tools.cli.failure import fail
from tools.cli.uplink.asking import DEFAULT_CONFIG, ConfigOption, answer
from tools.cli.utc import duration_of, utc_of
from uplink.control import FILTERS_MOST
from wire.errors import WireError
from wire.topics import check_topic_filter

COMMAND = "network show"
LINK_HEADINGS = (
    "link",
    "neighbour",
    "dialled by",
    "zone",
    "mode",
    "state",
    "waiting",
    "bytes",
    "oldest",
    "wants",
    "asked",
    "dropped",
)
FILTER_HEADINGS = ("filter", "wanted by", "asked of")
FILTERS = 100  # that are shown without --limit
NAMES_SAID = 10  # of links in a cell


def show(
    config: ConfigOption = DEFAULT_CONFIG,
    with_interest: Annotated[
        bool, typer.Option("--interest", help="List the topic filters that are wanted, and over which links.")
    ] = False,
    topic_filter: Annotated[
        str,
        typer.Option(
            "--filter", metavar="FILTER", help="List the topic filters that match a topic name of this filter."
        ),
    ] = "",
    after: Annotated[str, typer.Option("--after", metavar="FILTER", help="Begin the list behind this filter.")] = "",
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=FILTERS_MOST, help="The most filters to list.")
    ] = FILTERS,
    stream: Annotated[
        str, typer.Option("--stream", metavar="NAME", help="List those of a stream; without it of the default stream.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the links of the gateway to its neighbours, and what is wanted over them."""
    if topic_filter:
        try:
            check_topic_filter(topic_filter)
        except WireError as error:
            fail(COMMAND, f"--filter: {error}")
    found = answer(COMMAND, config, "network")
    if with_interest or topic_filter or after or stream:
        page = answer(COMMAND, config, "interest", filter=topic_filter, after=after, stream=stream, limit=limit)
        found |= {"filters": page["filters"], "has_more": page["has_more"]}
    if as_json:
        typer.echo(msgspec.json.encode(found).decode())
        return
    for line in _lines(found):
        typer.echo(line)


def _lines(found: dict[str, Any]) -> Iterator[str]:
    links, now_s = found["links"], time.time()
    if links:
        yield columns([LINK_HEADINGS, *(_link_row(one, found["gateway"], now_s) for one in links)])
        yield from map(printable, _remarks(links))
        yield f"{found['duplicates']} messages came again over a link since the start, and were not stored again"
    else:
        yield f"{printable(found['gateway'])} has no neighbours"
    if found["problem"]:
        yield printable(f"network: {found['problem']}")
    if "filters" in found:
        yield ""
        yield from _filter_lines(found["filters"], has_more=found["has_more"])


def _link_row(link: dict[str, Any], gateway: str, now_s: float) -> tuple[str, ...]:
    return (
        printable(link["name"] or "-"),
        printable(link["server"] if link["server"] and "://" in link["neighbour"] else link["neighbour"]),
        printable(gateway if link["is_dialled_here"] else link["neighbour"]),
        printable(f"{link['zone']}, {link['hops']}"),
        link["mode"],
        _state(link, now_s),
        f"{'' if link['is_counted'] else '<= '}{link['waiting_messages']}",
        str(link["waiting_bytes"]),
        duration_of(max(0.0, now_s - link["oldest_ms"] / 1000)) if link["oldest_ms"] else "-",
        str(link["wanted"]),
        str(link["asked"]),
        ", ".join(f"{reason} {count}" for reason, count in sorted(link["dropped"].items())) or "-",
    )


def _state(link: dict[str, Any], now_s: float) -> str:
    state = "set aside" if link["set_aside"] and link["connected"] else "up" if link["connected"] else "down"
    since_s = now_s - link["since_ms"] / 1000
    return f"{state} for {duration_of(max(0.0, since_s))}" if link["since_ms"] else state


def _remarks(links: list[dict[str, Any]]) -> Iterator[str]:
    """Yields what there is to say of single links."""
    for link in links:
        name = link["name"] or link["neighbour"]
        if not link["connected"]:
            since = f" since {utc_of(link['since_ms'])}" if link["since_ms"] else ""
            yield f"{name}: down{since}: {link['problem']}"
        if link["set_aside"]:
            yield f"{name}: {link['set_aside']}"
        for refused in link["refused"]:
            yield f"{name}: the neighbour refuses {refused}"


def _filter_lines(filters: list[dict[str, Any]], *, has_more: bool) -> Iterator[str]:
    if not filters:
        yield "no such topic filter is wanted or asked for"
        return
    yield columns([FILTER_HEADINGS, *map(_filter_row, filters)])
    if has_more:
        yield f"more follow: --after {printable(filters[-1]['filter'])!r}"


def _filter_row(one: dict[str, Any]) -> tuple[str, ...]:
    local = [f"{one['local']} here"] if one["local"] else []
    return printable(one["filter"]), _names([*local, *one["wanted_by"]]), _names(one["asked_of"])


def _names(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_SAID} more" if len(names) > NAMES_SAID else ""
    return printable(", ".join(names[:NAMES_SAID]) + more) or "-"
