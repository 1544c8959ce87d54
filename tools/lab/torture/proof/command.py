"""``holdfast lab torture proof``: random histories; no table may say complete while a message is missing."""

import time
from collections.abc import Iterator
from typing import Annotated

import typer

from tools.lab.result import JSON_OPTION, Judgement, end_judged, quick_option
from tools.lab.torture.proof.history import History, missing_of
from tools.lab.torture.proof.tables import gaps_in, open_tables, verdicts_in

AT_ONCE = 100
"""Histories whose messages are in the same tables: a query costs nearly as much for one."""
VIOLATIONS_MAX = 10  # that are told


def judge(histories: list[History], views: str = "") -> Iterator[str]:
    """Yields a sentence for each verdict that is not as promised, of histories with different names."""
    landed = [row for history in histories for row in history.landed]
    forged = [row for history in histories for row in history.forged]
    with open_tables(landed, views) as engine:
        gaps, verdicts = gaps_in(engine), verdicts_in(engine)
    yield from missing_of(histories, gaps)
    for history in histories:
        alarms = [stream for stream in history.streams if gaps.get(stream)]
        if history.is_calm and alarms:
            yield f"{alarms[0][0]} has all of its messages, and gaps {gaps[alarms[0]][:3]}"
    liars = {row.origin for row in forged}
    with open_tables([*landed, *forged], views) as engine:
        lied_to = verdicts_in(engine)
    for origin in (verdicts.keys() | lied_to.keys()) - liars:
        if verdicts[origin] != lied_to[origin]:
            yield f"a lie changes what is said of {origin}: {sorted(verdicts[origin] ^ lied_to[origin], key=str)[:2]}"


def proof(
    histories: Annotated[int, typer.Option(min=1, help="How many histories to draw.")] = 10_000,
    seed: Annotated[int, typer.Option(help="The seed of the first history; each one has the next number.")] = 1,
    quick: Annotated[bool, quick_option(histories=500)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Draw histories of devices, gateways and faults, and hold the tables against what was acknowledged.

    No table may say complete while a message is missing, and no lie of a client may change a verdict about others.
    Ends with 1 otherwise.
    """
    started = time.monotonic()
    violations: list[str] = []
    messages = lost = 0
    for first in range(0, histories, AT_ONCE):
        some = [History(seed + place, f"{place}.") for place in range(first, min(first + AT_ONCE, histories))]
        violations += judge(some)
        messages += sum(len(one.landed) for one in some)
        lost += sum(one.lacking for one in some)
        if (first + AT_ONCE) % 1000 == 0:
            typer.echo(f"{first + AT_ONCE:,} histories, {len(violations)} violations", err=True)
    more = {"histories": histories, "messages": messages, "missing": lost}
    judgement = Judgement(not violations, seed, violations=violations[:VIOLATIONS_MAX], more=more)
    line = f"{histories:,} histories, {messages:,} messages landed, {lost:,} missing: {len(violations)} false verdicts"
    end_judged("torture", "proof", judgement, time.monotonic() - started, [line, *violations[:VIOLATIONS_MAX]], as_json)
