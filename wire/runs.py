"""Runs of consecutive numbers, as route numbers and receipts spell them.

"42-541,543" is the numbers from 42 to 541 and the number 543. A run is (first, last). The lowest comes first, and no
two are adjacent: what follows each other is one run.
"""

from wire.identity import SEQ_MAX


def encode_runs(runs, above=0):
    """Returns the text of runs, which begin at `above` + 1 or later. Raises ValueError if they are not as above."""
    before = above
    for first, last in runs:
        check_number("number", first, before + 1, SEQ_MAX)
        check_number("number", last, first, SEQ_MAX)
        before = last + 1
    if before == above:
        raise ValueError("there is no number")
    return ",".join([f"{first}-{last}" if first < last else f"{first}" for first, last in runs])


def decode_runs(text, above=0):
    """Returns the runs in a text: a list of (first, last). Raises ValueError naming the fault; all has one spelling."""
    runs = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        try:
            runs.append((int(first[:20]), int(last[:20] or first[:20])))
        except ValueError:
            raise ValueError(f"{part[:32]!r} is not a number, nor a run of numbers")
    if encode_runs(runs, above) != text:
        raise ValueError(f"{text[:64]!r} is not how numbers are spelt")
    return runs


def runs_of(numbers):
    """Returns the runs of some numbers, which are given in order: a list of (first, last)."""
    return join_runs((number, number) for number in numbers)


def join_runs(runs):
    """Returns runs, which are given in order, with those in one that follow each other."""
    joined: list = []
    for first, last in runs:
        if joined and joined[-1][1] == first - 1:
            first, _ = joined.pop()
        joined.append((first, last))
    return joined


def check_number(what, number, least, most):
    """Raises ValueError, which says `what`, unless `number` is an int within `least` and `most`."""
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise ValueError(f"{what} {number!r} is not within {least} and {most}")
