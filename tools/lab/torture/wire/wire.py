"""`holdfast lab torture wire`: bytes into every MQTT decoder and both ends of a connection, both versions."""

import time
from typing import Annotated

import typer

from tools.lab.result import JSON_OPTION, Judgement, end_judged, quick_option
from tools.lab.sim.virtual_line import Dice
from tools.lab.torture.wire import mqtt_noise

PROGRESS_BYTES = 10_000_000


def wire(
    size: Annotated[int, typer.Option("--bytes", min=1, help="How many bytes to feed, at least.")] = 10_000_000,
    seed: Annotated[
        int, typer.Option(help="The number from which the bytes are drawn; the same number, the same bytes.")
    ] = 1,
    quick: Annotated[bool, quick_option(size=1_000_000)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Feed corrupt packets to the MQTT decoders and to both ends of a connection.

    They may raise documented errors only, and must give the same events for every split of the bytes. Ends with 1
    otherwise.
    """
    dice = Dice(seed)
    fed = streams = 0
    said = PROGRESS_BYTES
    failure = ""
    started = time.monotonic()
    while fed < size and not failure:
        try:
            fed += mqtt_noise.check(dice)
            streams += 1
        except Exception as error:  # any other error is not documented
            failure = f"{type(error).__name__}: {error}"
        if fed >= said:
            said += PROGRESS_BYTES
            typer.echo(f"{fed:,} bytes", err=True)
    more = {"bytes": fed, "streams": streams}
    judgement = Judgement(not failure, seed, violations=[failure] if failure else [], more=more)
    held = f"{fed:,} bytes in {streams:,} streams: only documented errors, the same in any pieces"
    line = f"after {fed:,} bytes, seed {seed}: {failure}" if failure else held
    end_judged("torture", "wire", judgement, time.monotonic() - started, [line], as_json)
