"""``holdfast lab torture flash``: power cuts, ruined images and bit rot on the flash store, compared with a model."""

import time
from collections.abc import Iterator
from typing import Annotated

import typer

from tools.lab.result import JSON_OPTION, Judgement, end_judged, quick_option
from tools.lab.torture.flash.images import fuzz
from tools.lab.torture.flash.power import Torture, torture_with_cuts
from tools.lab.torture.flash.rot import rot


def flash(
    cuts: Annotated[
        int, typer.Option(min=0, help="How many power cuts, at least. The start after each is cut again.")
    ] = 5000,
    images: Annotated[int, typer.Option(min=0, help="How many ruined flash images to mount.")] = 2000,
    seed: Annotated[int, typer.Option(help="The number from which all chance is drawn.")] = 1,
    quick: Annotated[bool, quick_option(cuts=500, images=300)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Cut the power of flash stores at every byte, mount ruined images, flip bits; compare with a model of the store.

    Ends with 1 if a message is lost without a trace, comes back, or is changed.
    """
    start = time.monotonic()
    torture = Torture()
    if cuts:
        torture_with_cuts(torture, cuts, seed)
    if images:
        fuzz(torture, images, seed)
        rot(torture, images, seed)
    violations = [str(violation) for violation in torture.violations]
    judgement = Judgement(not violations, seed, violations=violations, more=dict(torture.counts))
    end_judged("torture", "flash", judgement, time.monotonic() - start, _lines(torture, seed), as_json)


def _lines(torture: Torture, seed: int) -> Iterator[str]:
    for name, count in {**torture.counts, "seed": seed, "violations": len(torture.violations)}.items():
        yield f"{name.replace('_', ' ')}: {count}"
    for violation in torture.violations:
        yield f"  {violation}"
