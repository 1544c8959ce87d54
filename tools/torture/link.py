"""`holdfast torture link`: the serial link over lines that lose, spoil, repeat and invent bytes."""

import time
from typing import Annotated

import typer

from tools.result import JSON_OPTION, Judgement, end_judged, quick_option
from tools.torture import link_noise


def link(
    size: Annotated[int, typer.Option("--bytes", min=1, help="How many bytes to send, at least.")] = 1_000_000,
    seed: Annotated[
        int, typer.Option(help="The number from which errors are drawn; the same number, the same errors.")
    ] = 1,
    quick: Annotated[bool, quick_option(size=200_000)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Send streams over simulated serial lines that lose, corrupt, repeat and invent bytes.

    What arrives has to be what was sent, and a line that works again has to carry data again. Ends with 1 otherwise.
    """
    started = time.monotonic()
    delivered, failure = 0, ""
    try:
        delivered = link_noise.fuzz(size, seed)
    except ValueError as error:
        failure = str(error)
    more = {"bytes": size, "delivered": delivered}
    judgement = Judgement(not failure, seed, violations=[failure] if failure else [], more=more)
    held = f"{size:,} bytes over bad lines: {delivered:,} delivered, all as they were sent"
    line = f"seed {seed}: {failure}" if failure else held
    end_judged("torture", "link", judgement, time.monotonic() - started, [line], as_json)
