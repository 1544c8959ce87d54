"""`holdfast bench link`: how much of a serial line the link uses, and how fast it recovers."""

import asyncio
import time
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import typer

from tools.cli.failure import failing_on
from tools.lab import micropython
from tools.lab.bench.link import real_link, virtual_link
from tools.lab.figure import Figure
from tools.lab.result import JSON_OPTION, end_bench, quick_option

BAUD = 115_200
# The goals: one byte in this number is corrupt (a byte has eight bits), and the least share of the line's rate.
ERROR_RATES = {"clean": (0, 0.94), "1e-5": (12_500, 0.90), "1e-4": (1_250, 0.70)}
RESYNC_MAX_MS = 200


class Sizes(NamedTuple):
    """The sizes of a run: bytes and repetitions in virtual time; bytes, faults, erases and a stall in real time."""

    simulated_bytes: int
    runs: int
    real_bytes: int
    faults: int
    erases: int
    stall_s: float


WHOLE = Sizes(1_000_000, 20, 60_000, 3, 5, 60.0)
QUICK = Sizes(200_000, 3, 20_000, 1, 2, 8.0)


def link(
    seed: Annotated[int, typer.Option(help="The seed of the random errors: the same seed gives the same errors.")] = 1,
    quick: Annotated[bool, quick_option()] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Measure the serial link at 115,200 baud: on a simulated line, and between a MicroPython and the gateway's code.

    Takes two minutes. Ends with 1 if a goal is missed on the simulated line, or a byte is lost on any.
    """
    started = time.monotonic()
    sizes = QUICK if quick else WHOLE
    with failing_on(micropython.MicroPythonUnavailable, command="bench link"):
        real = asyncio.run(_real(seed, sizes))
    found = {"simulated": simulated(seed, sizes.simulated_bytes, sizes.runs), "real": real}
    about = {"baud": str(BAUD), "seed": str(seed), "device": str(real["device"])}
    end_bench("link", list(_figures(found)), time.monotonic() - started, as_json, ("measured", ""), about)


def simulated(seed: int, size: int, runs: int) -> dict[str, Any]:
    """Measures in virtual time; see `virtual_link`."""
    return {
        "share": {
            name: round(virtual_link.share(seed, BAUD, size, corrupt=corrupt), 3)
            for name, (corrupt, _) in ERROR_RATES.items()
        },
        "resync_ms": {
            "replug": virtual_link.resync_ms(seed, runs, noise=False, both=False),
            "noise": virtual_link.resync_ms(seed, runs, noise=True, both=False),
            "replug, both ways full": virtual_link.resync_ms(seed, runs, noise=False, both=True),
            "noise, both ways full": virtual_link.resync_ms(seed, runs, noise=True, both=True),
        },
        "erase": virtual_link.erase(seed, runs),
        "stall": virtual_link.stall(seed),
    }


async def _real(seed: int, sizes: Sizes) -> dict[str, Any]:
    """Measures real processes; see `real_link`."""
    vm = micropython.find()
    bare = await real_link.bare_bytes_per_s(BAUD)
    return {
        "device": f"MicroPython {vm.version}",
        "bare_bytes_per_s": round(bare),
        "share": {
            name: round(await real_link.share(vm, seed, BAUD, sizes.real_bytes, corrupt, bare), 3)
            for name, (corrupt, _) in ERROR_RATES.items()
        },
        "resync_ms": {
            "replug": await real_link.resync_ms(vm, seed, BAUD, noise=False, faults=sizes.faults),
            "noise": await real_link.resync_ms(vm, seed, BAUD, noise=True, faults=sizes.faults),
        },
        "erase": await real_link.erase(vm, seed, BAUD, sizes.real_bytes, sizes.erases),
        "stall": await real_link.stall(vm, seed, BAUD, sizes.stall_s),
    }


def _figures(found: dict[str, Any]) -> Iterator[Figure]:
    """Yields figures without a goal: times and rates between real processes depend on the machine."""
    for where, part in found.items():
        timed = where == "simulated"
        for name, (_, least) in ERROR_RATES.items():
            share = part["share"][name]
            yield Figure(f"{where}: share of the line, {name}", "share", share, None, least if timed else None)
        for name, waited_ms in part["resync_ms"].items():
            goal = RESYNC_MAX_MS if timed else None
            yield Figure(f"{where}: resync, {name}", "ms", waited_ms, None, goal, at_most=True)
        for name in ("erase", "stall"):
            for what, count in part[name].items():
                if what in ("line_bytes_lost", "stream_bytes_lost", "restarts"):
                    yield Figure(f"{where}: {name}, {what.replace('_', ' ')}", "", count, None, 0, at_most=True)
