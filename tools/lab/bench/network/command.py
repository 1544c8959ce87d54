"""``holdfast bench network``: gateways that subscribe for each other, beside NATS leaf nodes and mosquitto's bridge."""

import enum
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from tools.cli.failure import failing_on
from tools.lab.bench.broker.client import Refused
from tools.lab.bench.broker.processes import BenchUnavailable
from tools.lab.bench.network import foreign, interest, migration, multicast, rates, requests, streams, tree
from tools.lab.figure import Figure
from tools.lab.result import JSON_OPTION, end_bench, quick_option
from tools.lab.testing.client import UnexpectedEvent

TITLE = "a network of gateways, beside a chain of NATS leaf nodes and mosquitto's bridge"
QUICK = {
    "asked": 20,
    "filters": 2_000,
    "seconds": 0.2,
    "gateways": 50,
    "messages": 10_000,
    "datagrams": 30_000,
    "exported": 2_000,
}
FIRST_MESSAGES_SHARE = 10  # requests for one measurement of a first message


class Part(enum.StrEnum):
    """A part of the benchmark."""

    REQUESTS = "requests"
    FIRST_MESSAGE = "first_message"
    INTEREST = "interest"
    SELECTORS = "selectors"
    FOLLOW = "follow"
    REALTIME = "realtime"
    MIGRATION = "migration"
    TREE = "tree"
    MULTICAST = "multicast"
    NATS = "nats"
    STREAMS = "streams"


def network(
    part: Annotated[list[Part] | None, typer.Option(help="Only this part; may be repeated.")] = None,
    asked: Annotated[int, typer.Option("--requests", min=10, help="How many requests in each chain.")] = 10_000,
    filters: Annotated[int, typer.Option(min=100, max=100_000, help="How many filters.")] = 100_000,
    seconds: Annotated[float, typer.Option(min=0.2, help="Seconds that each rate is measured.")] = 8.0,
    gateways: Annotated[int, typer.Option(min=2, help="How many gateways are in the tree.")] = 1000,
    messages: Annotated[int, typer.Option(min=10_000, help="How many messages are migrated.")] = 1_000_000,
    datagrams: Annotated[int, typer.Option(min=1000, help="How many hostile datagrams.")] = 10_000_000,
    exported: Annotated[int, typer.Option(min=100, help="How many messages are exported.")] = 50_000,
    quick: Annotated[bool, quick_option(**QUICK)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Measure what a network of gateways answers, tells and carries. Ends with 1 if a goal is missed."""
    started = time.monotonic()
    measures: dict[Part, Callable[[Path], Iterator[Figure]]] = {
        Part.REQUESTS: lambda folder: requests.requests(folder, asked),
        Part.FIRST_MESSAGE: lambda folder: requests.first_message(folder, asked // FIRST_MESSAGES_SHARE),
        Part.INTEREST: lambda folder: interest.interest(folder, filters),
        Part.SELECTORS: lambda folder: rates.selectors(folder, seconds),
        Part.FOLLOW: lambda folder: rates.follow(folder, seconds),
        Part.REALTIME: lambda folder: rates.realtime(folder, seconds),
        Part.MIGRATION: lambda folder: migration.migration(folder, messages),
        Part.TREE: lambda _: tree.tree(gateways),
        Part.MULTICAST: lambda folder: multicast.multicast(folder, seconds, datagrams),
        Part.NATS: lambda folder: foreign.export(folder, exported),
        Part.STREAMS: lambda folder: streams.streams(folder, seconds),
    }
    with (
        failing_on(BenchUnavailable, Refused, UnexpectedEvent, OSError, command="bench network"),
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
    ):
        figures = [figure for one in part or Part for figure in measures[one](Path(folder) / one)]
    names = ("gateways", "peer")
    end_bench("network", figures, time.monotonic() - started, as_json, names, {"title": TITLE})
