"""``holdfast torture flash``: power cuts, ruined images and bit rot on the flash store; a model decides what holds."""

import json
import time
from typing import Annotated

import typer

from tools.torture.images import fuzz
from tools.torture.power import Torture, torture_with_cuts
from tools.torture.rot import rot


def flash(
    cuts: Annotated[int, typer.Option(min=0, help="How many power cuts, at least; each recovery is cut again.")] = 5000,
    images: Annotated[int, typer.Option(min=0, help="How many ruined images to mount.")] = 2000,
    seed: Annotated[int, typer.Option(help="What all chance follows from.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Cut the power of stores at every byte, ruin their images, flip their bits. Ends with 1 where a promise broke."""
    start = time.monotonic()
    torture = Torture()
    if cuts:
        torture_with_cuts(torture, cuts, seed)
    if images:
        fuzz(torture, images, seed)
        rot(torture, images, seed)
    seconds = round(time.monotonic() - start, 1)
    report = {**torture.counts, "violations": torture.violations, "seed": seed, "seconds": seconds}
    if as_json:
        print(json.dumps(report))
    else:
        _print_text(report)
    if torture.violations:
        raise typer.Exit(1)


def _print_text(report: dict[str, object]) -> None:
    for name, value in report.items():
        if name != "violations":
            print(f"{name.replace('_', ' ')}: {value}")
    violations = report["violations"]
    assert isinstance(violations, list)
    print(f"violations: {len(violations)}")
    for violation in violations:
        print(f"  {violation}")
