"""What the report says first: how complete the tables are, in a sentence, and durations for people."""

from typing import NamedTuple

from tools.cli.report.figures import Verdict

_DIGITS_MAX = 6


class Told(NamedTuple):
    """A headline, sentences below it, and its kind: `complete`, `open` or `missing`."""

    kind: str
    headline: str
    remarks: list[str]


def tell(verdict: Verdict) -> Told:
    """Returns what the verdict says.

    It says "complete" only where a statement is about each origin: else nothing tells what was sent after the last
    message that arrived. Conflicts lack as missing messages do: no reading is of them.
    """
    total = verdict.arrived + verdict.missing + verdict.conflicts
    if not total:
        return Told("open", "No message has arrived.", [])
    gaps = _gaps(verdict)
    counted = f"{percent(verdict.arrived, total)} of {total:,} messages{gaps}"
    remarks = [f"{verdict.readings:,} readings are in the tables."]
    if verdict.missing:
        remarks.insert(0, f"{_are(verdict.missing, 'message')} missing.")
    if verdict.conflicts:
        came = f"{verdict.conflicts:,} message{' has' if verdict.conflicts == 1 else 's have'}"
        remarks.insert(
            0, f"{came} the identity of another message, and so no readings: see the conflicts in quarantine."
        )
    if verdict.unstated:
        remarks.append(
            f"No statement is about {verdict.unstated:,} of {verdict.origins:,} origins and epochs: "
            "nothing tells what these sent after their last message that arrived."
        )
    if verdict.missing or verdict.conflicts:
        return Told("missing", counted, remarks)
    if verdict.unstated:
        return Told("open", f"{counted} that are known of", remarks)
    return Told("complete", f"Complete: {counted}", remarks)


def percent(part: int, whole: int) -> str:
    """Returns a share that is rounded down, with as many digits as it needs to differ clearly from 100 %."""
    for digits in range(1, _DIGITS_MAX + 1):
        scaled, rest = divmod(100 * 10**digits * part, whole)
        if scaled + (rest > 0) < 100 * 10**digits:
            return f"{scaled / 10**digits:.{digits}f} %"
    return "100 %" if part == whole else f"more than 99.{'9' * _DIGITS_MAX} %"


def written(seconds: float) -> str:
    """Returns a duration in its two largest units: `350 ms`, `12.3 s`, `3 min 5 s`, `2 d 4 h`."""
    if seconds < 0:
        return f"\N{MINUS SIGN}{written(-seconds)}"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, size, below, rest in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            count, over = whole // size, whole % size // rest
            return f"{count:,} {unit}" + (f" {over} {below}" if over else "")
    return f"{whole} s"


def _gaps(verdict: Verdict) -> str:
    parts = [
        f"{count:,} gap{'' if count == 1 else 's'} {what}"
        for count, what in (
            (verdict.explained, "explained"),
            (verdict.in_transit, "in transit"),
            (verdict.unexplained, "unexplained"),
        )
        if count
    ]
    if verdict.conflicts:
        parts.append(f"{verdict.conflicts:,} conflict{'' if verdict.conflicts == 1 else 's'}")
    return "".join(f", {part}" for part in parts)


def _are(count: int, what: str) -> str:
    return f"{count:,} {what}{' is' if count == 1 else 's are'}"
