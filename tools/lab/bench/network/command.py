"""``holdfast bench network``: what gateways that subscribe for each other carry, beside mosquitto's bridge."""

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
from tools.lab.bench.network import multicast, rates, streams
from tools.lab.figure import Figure
from tools.lab.result import JSON_OPTION, end_bench, quick_option
from tools.lab.testing.client import UnexpectedEvent

TITLE = "a network of gateways, beside routes and mosquitto's bridge"


class Part(enum.StrEnum):
    """A part of the benchmark."""

    SELECTORS = "selectors"
    FOLLOW = "follow"
    REALTIME = "realtime"
    MULTICAST = "multicast"
    STREAMS = "streams"


def network(
    part: Annotated[list[Part] | None, typer.Option(help="Only this part; may be repeated.")] = None,
    seconds: Annotated[float, typer.Option(min=0.2, help="Seconds that each rate is measured.")] = 8.0,
    datagrams: Annotated[int, typer.Option(min=1000, help="How many hostile datagrams.")] = 10_000_000,
    quick: Annotated[bool, quick_option(seconds=0.8, datagrams=30_000)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Measure what a network of gateways carries. Ends with 1 if a goal is missed."""
    started = time.monotonic()
    measures: dict[Part, Callable[[Path], Iterator[Figure]]] = {
        Part.SELECTORS: lambda folder: rates.selectors(folder, seconds),
        Part.FOLLOW: lambda folder: rates.follow(folder, seconds),
        Part.REALTIME: lambda folder: rates.realtime(folder, seconds),
        Part.MULTICAST: lambda folder: multicast.multicast(folder, seconds, datagrams),
        Part.STREAMS: lambda folder: streams.streams(folder, seconds),
    }
    with (
        failing_on(BenchUnavailable, Refused, UnexpectedEvent, OSError, command="bench network"),
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
    ):
        figures = [figure for one in part or Part for figure in measures[one](Path(folder) / one)]
    names = ("gateways", "peer")
    end_bench("network", figures, time.monotonic() - started, as_json, names, {"title": TITLE})
