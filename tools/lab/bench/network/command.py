"""``holdfast lab bench network``: what gateways that subscribe for each other carry, beside mosquitto's bridge."""

import enum
import time
from typing import Annotated

import typer

from tools.lab.bench.broker.client import Refused
from tools.lab.bench.broker.processes import bench_folder
from tools.lab.bench.network import rates
from tools.lab.result import JSON_OPTION, end_bench, quick_option
from tools.lab.testing.client import UnexpectedEvent

TITLE = "a network of gateways, beside routes and mosquitto's bridge"


class Part(enum.StrEnum):
    """A part of the benchmark."""

    SELECTORS = "selectors"
    FOLLOW = "follow"


def network(
    part: Annotated[list[Part] | None, typer.Option(help="Only this part; may be repeated.")] = None,
    seconds: Annotated[float, typer.Option(min=0.2, help="Seconds that each rate is measured.")] = 8.0,
    quick: Annotated[bool, quick_option(seconds=0.8)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Measure what a network of gateways carries. Ends with 1 if a goal is missed."""
    started = time.monotonic()
    measures = {Part.SELECTORS: rates.selectors, Part.FOLLOW: rates.follow}
    with bench_folder("lab bench network", Refused, UnexpectedEvent, OSError) as folder:
        figures = [figure for one in part or Part for figure in measures[one](folder / one, seconds)]
    end_bench("network", figures, time.monotonic() - started, as_json, ("gateways", "peer"), {"title": TITLE})
