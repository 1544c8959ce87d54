"""``holdfast lab torture broker``: malicious and broken sessions over all listeners of a gateway."""

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tools.cli.failure import failing_on
from tools.cli.paths import memory_folder
from tools.lab.result import JSON_OPTION, Judgement, end_judged, quick_option
from tools.lab.testing.process import ProcessFailed
from tools.lab.torture.broker.replay import replay
from tools.lab.torture.broker.run import Outcome, torture


def broker(
    packets: Annotated[int, typer.Option(min=1, help="How many packets to send, at least.")] = 1_000_000,
    seed: Annotated[int, typer.Option(min=0, help="The number from which all chance is drawn.")] = 1,
    generators: Annotated[int, typer.Option(min=1, max=8, help="How many processes send packets.")] = 1,
    session: Annotated[
        int | None,
        typer.Option(
            min=0, help="Play only the session with this number, and find the smallest part of it that fails."
        ),
    ] = None,
    quick: Annotated[bool, quick_option(packets=40_000)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Send corrupt MQTT sessions to a gateway over all its listeners, while ordinary clients exchange messages.

    Ends with 1 if the gateway answers wrongly, keeps anything of a session that has ended, or disturbs an ordinary
    client. A session that is answered wrongly is named by a number, for --session.
    """
    started = time.monotonic()
    with (
        failing_on(ProcessFailed, OSError, command="lab torture broker"),
        tempfile.TemporaryDirectory(dir=memory_folder()) as folder,
    ):
        if session is not None:
            _replay(Path(folder), seed, session)
            return
        outcome = asyncio.run(torture(Path(folder), seed, packets, generators, lambda line: _say(line)))
    more = asdict(outcome)
    own, leaks, failures = (more.pop(key) for key in ("violations", "leaks", "failures"))
    violations = [
        *own,
        *(f"left behind: {count} {kind}" for kind, count in leaks.items()),
        *(f"session {number}: {fault}; again with --seed {seed} --session {number}" for number, fault in failures),
    ]
    judgement = Judgement(outcome.holds, seed, outcome.witnessed, violations=violations, more=more)
    lines = [*_lines(outcome), *(f"  {violation}" for violation in violations)]
    end_judged("torture", "broker", judgement, time.monotonic() - started, lines, as_json)


def _replay(folder: Path, seed: int, session: int) -> None:
    found = asyncio.run(replay(folder, seed, session, print))
    for fault in found:
        print(fault)
    if found:
        raise typer.Exit(1)
    print(f"session {session} of seed {seed} is answered as it has to be")


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _lines(outcome: Outcome) -> Iterator[str]:
    rate = outcome.packets / outcome.storm_seconds if outcome.storm_seconds else 0
    yield (
        f"{outcome.packets:,} packets in {outcome.sessions:,} sessions, {rate:,.0f}/s; processor time of the "
        f"gateway: {outcome.gateway_cpu_s:.0f} s"
    )
    yield ", ".join(f"{kind} {count:,}" for kind, count in sorted(outcome.lines.items()))
    yield (
        f"good clients: {outcome.witnessed:,} messages, each once and in order, the slowest "
        f"{outcome.witness_longest_s} s"
    )
    yield f"after each round in use, blocks: {outcome.blocks}, kB besides: {outcome.malloc_kb}"
    yield f"from the system, kB: {outcome.memory_kb}"
