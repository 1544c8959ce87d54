"""``holdfast demo``: the real system on one machine, broken on purpose, and the verdict from its tables."""

import asyncio
import random
import signal
import time
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession
from rich.console import Console

from cloud import open_session, open_views
from host.server import parse_server
from tools.cli.paths import cache_directory
from tools.lab.demo import chart
from tools.lab.demo.faults import draw_faults, draw_loss
from tools.lab.demo.folder import Place, demo_place
from tools.lab.demo.report import Outcome, judge_outcome, print_outcome
from tools.lab.demo.run import Run
from tools.lab.demo.site import DEVICES, QOS, Broker, Site
from tools.lab.demo.verdict import judge
from tools.lab.firmware import find_firmware
from tools.lab.result import JSON_OPTION, end_judged, quick_option
from tools.lab.testing.process import ProcessFailed

READINGS = 6_000
QUICK_READINGS = 1_500
INTERRUPTED = 130


def demo(
    readings: Annotated[int, typer.Option(min=100, help="How many readings the two devices make in all.")] = READINGS,
    faults: Annotated[
        bool,
        typer.Option(
            "--faults/--no-faults",
            help="Whether to cut a link, kill the gateway, cut power, and lose a store.",
        ),
    ] = True,
    broker: Annotated[
        str | None, typer.Option(help="Use this central broker, mqtt://host:port, instead of starting one.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Keep all files of the run in this folder, which has to be empty.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The number from which the faults are drawn; the same number, the same faults.")
    ] = None,
    quick: Annotated[bool, quick_option(readings=QUICK_READINGS)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Run two devices, a gateway, a broker, a lander and the Spark job on this machine, and break things meanwhile.

    At the end the readings in the tables are compared with the readings that the devices made. Ends with 1 if one is
    missing or there twice, with 2 if the demo could not be carried out.
    """
    central = _central(broker)
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    console = Console(highlight=False)
    try:
        with demo_place(keep) as place:
            outcome = asyncio.run(_demo(console, place, central, readings, faults, seed))
    except ProcessFailed as error:
        console.print(f"[bold red]The demo broke down[/] (seed {seed}): ", end="")
        console.print(str(error), markup=False)
        raise typer.Exit(2) from None
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("Interrupted; every process has been stopped.")
        raise typer.Exit(INTERRUPTED) from None
    print_outcome(console, outcome)
    end_judged("demo", "first-reading", judge_outcome(outcome, seed), outcome.seconds, [], as_json)


def _central(broker: str | None) -> Broker | None:
    if broker is None:
        return None
    try:
        server = parse_server(broker, ("mqtt",))
        return Broker(server.host, server.port)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--broker") from None


async def _demo(
    console: Console, place: Place, central: Broker | None, readings: int, with_faults: bool, seed: int
) -> Outcome:
    started = time.monotonic()
    _end_on_sigterm()

    def say(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - started:5.1f} s[/]  ", end="")
        console.print(text, markup=False, soft_wrap=True)

    chance = random.Random(seed)
    run_name = f"{random.SystemRandom().randrange(1 << 16):04x}"
    firmware, why_not_micropython = find_firmware()
    if why_not_micropython:
        say(f"no MicroPython here ({why_not_micropython}): the firmware runs on CPython instead")
    faults = draw_faults(chance) if with_faults else []
    if with_faults and central is None:
        faults.append(draw_loss(chance))
    site = Site(place.run, run_name, central, firmware, readings)
    run = Run(site, readings, faults, say)
    broker = f"with {central.url} as the central broker" if central else "with a central broker of its own"
    say(f"seed {seed}; starting a site of two devices, a gateway and a lander, {broker}")
    if with_faults and central is not None:
        say("the central broker is not the demo's own: its store is left alone, and nothing is kept until a receipt")
    try:
        await run.open()
        say(f"{readings:,} readings are being made on {firmware.vm}; {_ways()}")
        await site.open_job()
        await run.flow()
        session = asyncio.create_task(asyncio.to_thread(open_session, cache_directory()))  # Spark starts meanwhile
        session.add_done_callback(lambda done: done.cancelled() or done.exception())  # a run that fails does not wait
        say("all readings are made; waiting for the last of them to land")
        await run.drain()
        say("everything has landed; the Spark job brings it into tables")
        await run.ingest()
        sent_again = run.sent_again
    finally:
        await run.close()
    say("the tables are there; holding them against what the devices counted")
    return await asyncio.to_thread(_judge, await session, place, run, firmware.vm, len(faults), sent_again, started)


def _ways() -> str:
    network, serial = (f"{device} sends over {{}} at QoS {QOS[device]}" for device in DEVICES)
    return f"{network.format('TCP')}, {serial.format('a serial line')}"


def _judge(
    spark: SparkSession, place: Place, run: Run, vm: str, faults: int, sent_again: int, started: float
) -> Outcome:
    open_views(spark, place.run / "tables")
    verdict = judge(spark, run.made())
    spark.stop()
    chart.draw_png(run.timeline, place.run / "chart.png")
    print(chart.draw_text(run.timeline))
    seconds = time.monotonic() - started
    sent = run.bytes_sent
    return Outcome(
        verdict,
        faults,
        vm,
        run.flow_s,
        seconds,
        sent,
        sent_again,
        place.results / "tables",
        place.results / "chart.png",
    )


def _end_on_sigterm() -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
