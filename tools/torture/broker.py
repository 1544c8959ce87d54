"""``holdfast torture broker``: malicious and broken sessions over all listeners of a gateway, beside good clients."""

import asyncio
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tools.demo.process import ProcessFailed
from tools.failure import failing_on
from tools.paths import memory_folder
from tools.torture.broker_replay import replay
from tools.torture.broker_run import Outcome, torture


def broker(
    packets: Annotated[int, typer.Option(min=1, help="How many packets to send at least.")] = 1_000_000,
    seed: Annotated[int, typer.Option(min=0, help="What all chance follows from.")] = 1,
    generators: Annotated[int, typer.Option(min=1, max=8, help="Processes that send them.")] = 1,
    session: Annotated[int | None, typer.Option(min=0, help="Play only the session with this number, alone.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Storm a gateway with spoilt sessions over all kinds of lines. Ends with 1 where it or anybody else notices.

    A session that the gateway answers wrongly is named with its number; with the same seed and ``--session`` it is
    played again, and made as small as can be.
    """
    with (
        failing_on(ProcessFailed, OSError, command="torture broker"),
        tempfile.TemporaryDirectory(dir=memory_folder()) as folder,
    ):
        if session is not None:
            _replay(Path(folder), seed, session)
            return
        outcome = asyncio.run(torture(Path(folder), seed, packets, generators, lambda line: _say(line)))
    if as_json:
        print(json.dumps({**asdict(outcome), "seed": seed, "holds": outcome.holds}))
    else:
        _print_text(outcome, seed)
    if not outcome.holds:
        raise typer.Exit(1)


def _replay(folder: Path, seed: int, session: int) -> None:
    found = asyncio.run(replay(folder, seed, session, print))
    for fault in found:
        print(fault)
    if found:
        raise typer.Exit(1)
    print(f"session {session} of seed {seed} is answered as it has to be")


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _print_text(outcome: Outcome, seed: int) -> None:
    rate = outcome.packets / outcome.storm_seconds if outcome.storm_seconds else 0
    lines = ", ".join(f"{kind} {count:,}" for kind, count in sorted(outcome.lines.items()))
    print(
        f"{outcome.packets:,} packets in {outcome.sessions:,} sessions, {rate:,.0f}/s; processor time of the "
        f"gateway: {outcome.gateway_cpu_s:.0f} s\n{lines}\n"
        f"good clients: {outcome.witnessed:,} messages, each once and in order, the slowest "
        f"{outcome.witness_longest_s} s\n"
        f"after each round in use, blocks: {outcome.blocks}, kB besides: {outcome.malloc_kb}\n"
        f"from the system, kB: {outcome.memory_kb}"
    )
    for violation in outcome.violations:
        print(f"  {violation}")
    for kind, count in outcome.leaks.items():
        print(f"  left behind: {count} {kind}")
    for number, fault in outcome.failures:
        print(f"  session {number}: {fault}; again with --seed {seed} --session {number}")
