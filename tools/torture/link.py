"""`holdfast torture link`: the serial link over lines that lose, spoil, repeat and invent bytes."""

import json
import time
from typing import Annotated

import typer

from tools.torture import link_noise


def link(
    size: Annotated[int, typer.Option("--bytes", min=1, help="How many bytes to send at least.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="The same seed makes the same noise.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Send streams over bad serial lines, in virtual time.

    What is delivered must be the stream that was sent, and a line that is good again must carry. Exit code 1 otherwise.
    """
    started = time.monotonic()
    delivered, failure = 0, ""
    try:
        delivered = link_noise.fuzz(size, seed)
    except ValueError as error:
        failure = str(error)
    seconds = round(time.monotonic() - started, 1)
    if as_json:
        report = {"bytes": size, "delivered": delivered, "seed": seed, "seconds": seconds, "failure": failure}
        typer.echo(json.dumps(report))
    elif failure:
        typer.echo(f"seed {seed}: {failure}")
    else:
        typer.echo(f"{size:,} bytes over bad lines: {delivered:,} delivered, all as they were sent")
    if failure:
        raise typer.Exit(1)
