"""``holdfast bench fanout``: messages through the gateway to its subscribers, beside mosquitto in the same run."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from tools.bench.broker import LEAST_OF_SYNC, sync_s
from tools.bench.broker_figures import Figure, print_figures
from tools.bench.broker_processes import BenchUnavailable, gateway, load, mosquitto

SUBSCRIBERS = (1, 10, 100)
WINDOW = 200
LEAST_TIMES_MEMORY = 1.5
MATCHING = 10
FEW, MANY = 100, 100_000
MOST_TIMES_FEW = 1.5
TITLE = "QoS 1 publishes of 100 B through to online QoS 1 subscribers, one publisher, window 200"


def fanout(
    seconds: Annotated[float, typer.Option(min=0.2, help="How long each measurement takes.")] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Measure messages through to subscribers, beside mosquitto. Ends with 0 also where a bar is missed."""
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder, ExitStack() as stack:
            print_figures(TITLE, list(_figures(Path(folder), stack, seconds)), as_json)
    except BenchUnavailable as error:
        print(f"holdfast bench fanout: {error}", file=sys.stderr)
        raise typer.Exit(2) from error


def _figures(folder: Path, stack: ExitStack, seconds: float) -> Iterator[Figure]:
    for name in ("ours", "memory"):
        (folder / name).mkdir()
    ours = stack.enter_context(gateway(folder / "ours"))
    memory = stack.enter_context(mosquitto(folder / "memory"))
    for count in SUBSCRIBERS:
        theirs = load(memory, subscribers=count, window=WINDOW, seconds=seconds)["rate"]
        rate = load(ours, subscribers=count, window=WINDOW, seconds=seconds)["rate"]
        name = f"to {count} subscriber{'s' if count > 1 else ''}"
        allowed = LEAST_OF_SYNC * WINDOW / sync_s(folder)  # where the disk does not allow the bar
        yield Figure(name, "messages/s", rate, theirs, min(LEAST_TIMES_MEMORY * theirs, allowed))
    costs = {
        (broker, others): 1e6 / load(broker, subscribers=MATCHING, others=others, seconds=seconds)["rate"]
        for others in (FEW, MANY)
        for broker in (ours, memory)
    }
    name = f"a publish to {MATCHING} among {{:,}} wildcard subscriptions"
    yield Figure(name.format(FEW), "us", costs[ours, FEW], costs[memory, FEW])
    bar = MOST_TIMES_FEW * costs[ours, FEW]
    yield Figure(name.format(MANY), "us", costs[ours, MANY], costs[memory, MANY], bar, at_most=True)
