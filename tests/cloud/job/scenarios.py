"""Messages that are missing, each for a reason that route numbers and statements of routes tell, or do not."""

from typing import Any

from cloud.landing.file import Link, Row
from tests.cloud.job.links import dropped, handed, handed_on, stated
from tests.cloud.job.links import without as left
from tests.cloud.messages import BASE_TIME_S, row

REASONS = ("damaged", "expired", "evicted", "rejected", "filtered", "oversize", "ended", "selected", "unrouted")
Gap = tuple[int, int, int, str, str]  # lo, hi, missing, place, reason


def numbered(origin: str, numbers: dict[int, int], gateway: str) -> list[Row]:
    """Messages of an origin: seq and number of each."""
    return [handed(origin, seq, number, gateway) for seq, number in numbers.items()]


def scenarios() -> dict[str, tuple[list[Row], list[Gap]]]:
    """By the name of a gateway: the messages that landed, in this order, and the gaps of its device, `x-<name>`."""
    found: dict[str, tuple[list[Row], list[Gap]]] = {}

    def when(name: str, numbers: dict[int, int], *statements: Row, gaps: list[Gap]) -> None:
        found[name] = [*numbered(f"x-{name}", numbers, name), *statements], gaps

    alike = {seq: seq for seq in range(1, 10)}

    def without(*seqs: int, upto: int = 9) -> dict[int, int]:
        return {seq: number for seq, number in alike.items() if seq not in seqs and seq <= upto}

    def whole(name: str, messages: int = 9, **more: Any) -> Row:
        return stated(name, 1, 1, 9, [handed_on(f"x-{name}", messages, 1, 9)], **more)

    when("whole", alike, whole("whole"), gaps=[])
    some = {3: 1, 4: 2, 7: 3, 9: 4}
    holes: list[Gap] = [(1, 2, 2, "head", "unknown"), (5, 6, 2, "middle", "unknown"), (8, 8, 1, "middle", "unknown")]
    when("no-word", some, gaps=holes)
    when("counted", some, stated("counted", 1, 1, 4, [handed_on("x-counted", 4, 3, 9)]), gaps=holes)
    named = [left("x-left-out", (1, 2), (5, 6), (8, 8), (10, 12))]
    when("left-out", some, stated("left-out", 1, 1, 4, [handed_on("x-left-out", 4, 3, 9)], left_out=named), gaps=[])
    named = [left("x-partly", (1, 2), (6, 6))]
    when(
        "partly",
        some,
        stated("partly", 1, 1, 4, [handed_on("x-partly", 4, 3, 9)], left_out=named),
        gaps=[(5, 5, 1, "middle", "unknown"), (8, 8, 1, "middle", "unknown")],
    )
    sparse = [dropped("selected", "x-sparse", 1, 8, 5)]
    when(
        "sparse",
        some,
        stated("sparse", 1, 1, 4, [handed_on("x-sparse", 4, 3, 9)], sparse),
        gaps=[(lo, hi, count, place, "selected") for lo, hi, count, place, _ in holes],
    )
    when("head", without(1, 2), whole("head"), gaps=[(1, 2, 2, "head", "lost")])
    when("middle", without(4, 5), whole("middle"), gaps=[(4, 5, 2, "middle", "lost")])
    when("tail", without(8, 9), whole("tail"), gaps=[(8, 9, 2, "tail", "lost")])
    when("only-tail", {}, whole("only-tail", 4), gaps=[])  # a route speaks of the origins that it has handed on
    named = [left("x-filtered-tail", (1, 1), (3, 3), (5, 7))]
    when(
        "filtered-tail",
        {2: 1, 4: 2},
        stated("filtered-tail", 1, 1, 4, [handed_on("x-filtered-tail", 4, 2, 9)], left_out=named),
        gaps=[(8, 9, 2, "tail", "lost")],
    )
    named = [left("x-one-of-some", (2, 5), (7, 8))]
    when(
        "one-of-some",
        {1: 1, 9: 3},
        stated("one-of-some", 1, 1, 3, [handed_on("x-one-of-some", 3, 1, 9)], left_out=named),
        gaps=[(6, 6, 1, "middle", "lost")],
    )
    when("silent", without(4, 5), gaps=[(4, 5, 2, "middle", "unknown")])
    early = stated("in-transit", 1, 1, 3, [handed_on("x-in-transit", 3, 1, 3)])._replace(
        via=[Link(31, 10, "in-transit", "central")]
    )
    when("in-transit", without(4, 5), early, gaps=[(4, 5, 2, "middle", "in transit")])
    when("set-aside", without(4, 5), whole("set-aside", refused=[(4, 5)]), gaps=[(4, 5, 2, "middle", "in transit")])
    second = stated("no-longer", 2, 10, 10, [])
    when("no-longer", without(4, 5), whole("no-longer", refused=[(4, 5)]), second, gaps=[(4, 5, 2, "middle", "lost")])
    when("tail-aside", without(8, 9), whole("tail-aside", refused=[(8, 9)]), gaps=[(8, 9, 2, "tail", "in transit")])
    for reason in REASONS:
        ranges = [dropped(reason, f"x-{reason}", 4, 5)]
        gap = [(4, 5, 2, "middle", reason)] if reason != "selected" else []
        when(reason, without(4, 5), whole(reason, 7, ranges=ranges), gaps=gap)
    live = {1: 1, 2: 2, 6: 3, 7: 4}
    until_two = stated("filling", 1, 1, 2, [handed_on("x-filling", 2, 1, 2)])._replace(
        via=[Link(31, 20, "filling", "central")]
    )
    waits = stated("filling", 2, 3, 4, [handed_on("x-filling", 2, 6, 7)], backfill=True)
    when("filling", live, until_two, waits, gaps=[(3, 5, 3, "middle", "in transit")])
    done = stated("filled", 2, 5, 4)
    named = [left("x-filled", (3, 5))]
    whole_lane = stated("filled", 1, 1, 4, [handed_on("x-filled", 4, 1, 7)], backfill=True, left_out=named)
    when("filled", live, whole_lane, done, gaps=[])
    when(
        "aside-or-lost",
        without(4, 5),
        whole("aside-or-lost", refused=[(5, 5)]),
        gaps=[(4, 5, 2, "middle", "unknown")],
    )
    ranges = [
        dropped("expired", "x-pieces", 1, 1),
        dropped("evicted", "x-pieces", 4, 5),
        dropped("expired", "x-pieces", 9, 9),
    ]
    when(
        "pieces",
        without(1, 4, 5, 6, 9),
        whole("pieces", 6, ranges=ranges),
        gaps=[
            (1, 1, 1, "head", "expired"),
            (4, 5, 2, "middle", "evicted"),
            (6, 6, 1, "middle", "lost"),
            (9, 9, 1, "tail", "expired"),
        ],
    )
    grown = [dropped("expired", "x-grown", 4, 4)], [dropped("expired", "x-grown", 4, 6)]
    first, later = (
        stated("grown", place, 1 if place == 1 else 10, 9, [handed_on("x-grown", 6, 1, 9)] if place == 1 else [], one)
        for place, one in enumerate(grown, 1)
    )
    when("grown", without(4, 5, 6), later, first, later, gaps=[(4, 6, 3, "middle", "expired")])
    parts = [
        stated("turned", 1, 1, 4, [handed_on("x-turned", 4, 1, 4)]),
        stated("turned", 2, 5, 9, [handed_on("x-turned", 5, 5, 9)]),
    ]
    parts = [one._replace(via=[Link(31, 9 + place, "turned", "central")]) for place, one in enumerate(parts, 1)]
    when("turned", without(4, 5), *reversed(parts), gaps=[(4, 5, 2, "middle", "lost")])
    only_second = stated("unstated", 2, 6, 9, [handed_on("x-unstated", 4, 6, 9)])
    when("unstated", without(4, 5), only_second, gaps=[(4, 5, 2, "middle", "unknown")])
    return found


def chained() -> list[Row]:
    """Messages over two links. The second route does not take what it is not sent: 4 and 5, nor what it filters: 7."""
    numbers = {1: (1, 1), 2: (2, 2), 3: (3, 3), 6: (6, 4), 8: (8, 5)}
    return [
        handed("x-chain", seq, first, "chain", Link(31, second, "centre", "up"))
        for seq, (first, second) in numbers.items()
    ]


SCENARIOS = scenarios()


def landings() -> list[list[Row]]:
    """Returns the rows of landing files with all scenarios, a device over two links, and two whose messages have no
    number of a route: one is missing some over hours. The last file has the scenarios again, in reverse."""
    # At 8:53:21 and 11:20:01 UTC, with 16 missing between them: one each 8.6 minutes. The last one is at 12:00:00.
    times = {1: 1, 18: 8801, 19: 11_200}
    hours = [
        row(seq, "x-hours", b'[{"bn":"x-hours:","bt":%d,"n":"t","v":1}]' % (BASE_TIME_S + second))
        for seq, second in times.items()
    ]
    numberless = [row(seq, "x-numberless") for seq in (2, 3, 6)]
    rows = [one for some, _ in SCENARIOS.values() for one in some]
    return [rows, hours, numberless, chained(), [*reversed(rows)]]
