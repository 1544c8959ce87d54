"""``holdfast bench storage``: bytes that the gateway writes to the medium for each message."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from tools.bench.broker_figures import Figure, print_figures
from tools.bench.broker_processes import BenchUnavailable, gateway, load

GATHERING_MS = 500
# messages/s: commit_interval_ms, most bytes a message
RATES = {1: (0, 4300), 100: (GATHERING_MS, 300), 10_000: (GATHERING_MS, 200)}
ACKNOWLEDGEMENT = 4  # bytes to the client, which the kernel counts as written too
TITLE = "bytes written for each QoS 1 message of 100 B, kept for a subscriber that is away"


def storage(
    seconds: Annotated[float, typer.Option(min=1, help="How long each rate is held.")] = 20.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Measure what the gateway writes to the medium. Ends with 0 also where a bar is missed."""
    try:
        figures = [figure for rate in RATES for figure in _figures(rate, seconds)]
    except BenchUnavailable as error:
        print(f"holdfast bench storage: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    print_figures(TITLE, figures, as_json)


def _figures(rate: int, seconds: float) -> Iterator[Figure]:
    interval_ms, bar = RATES[rate]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder, gateway(Path(folder), interval_ms) as ours:
        load(ours, seconds=0.1, is_kept=True, rate=rate, window=30_000)
        written, paged = ours.io("wchar"), ours.io("write_bytes")
        messages = load(ours, seconds=seconds, rate=rate, window=30_000, is_kept=True)["acknowledged"]
        written = ours.io("wchar") - written - ACKNOWLEDGEMENT * messages
        paged = ours.io("write_bytes") - paged
    name = f"at {rate:,}/s, commit_interval_ms = {interval_ms}"
    yield Figure(f"{name}, by the store", "bytes", written / messages, None, bar, at_most=True)
    yield Figure(f"{name}, as whole pages of the kernel", "bytes", paged / messages)
