"""Sets of sequence numbers as closed intervals.

The sequence numbers of one (origin, epoch) have no holes, so the numbers that arrived are a few intervals and not a
set of keys. Every list here is sorted, and no interval overlaps or touches the next, unless a parameter is called
`any_order`.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np

Interval: TypeAlias = tuple[int, int]
Intervals: TypeAlias = list[Interval]


def merge(any_order: Iterable[Interval]) -> Intervals:
    """Returns the same numbers in the fewest intervals. The given ones may overlap and touch."""
    merged: Intervals = []
    for lo, hi in sorted(any_order):
        if merged and lo <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], hi))
        else:
            merged.append((lo, hi))
    return merged


def overlaps(any_order: Iterable[Interval]) -> Intervals:
    """Returns the numbers that lie in two or more of the given intervals."""
    twice: Intervals = []
    reached = None
    for lo, hi in sorted(any_order):
        if reached is not None and lo <= reached:
            twice.append((lo, min(hi, reached)))
        reached = hi if reached is None else max(reached, hi)
    return merge(twice)


def intersect(left: Intervals, right: Intervals) -> Intervals:
    """Returns the numbers that are in both."""
    return list(_intersections(left, right))


def subtract(left: Intervals, right: Intervals) -> Intervals:
    """Returns the numbers of `left` that are not in `right`."""
    rest: Intervals = []
    cuts = iter(intersect(left, right))
    cut = next(cuts, None)
    for lo, hi in left:
        while cut is not None and cut[1] <= hi:
            if lo < cut[0]:
                rest.append((lo, cut[0] - 1))
            lo = cut[1] + 1
            cut = next(cuts, None)
        if lo <= hi:
            rest.append((lo, hi))
    return rest


def count(intervals: Intervals) -> int:
    """Returns how many numbers the intervals hold."""
    return sum(hi - lo + 1 for lo, hi in intervals)


def _intersections(left: Intervals, right: Intervals) -> Iterator[Interval]:
    i = j = 0
    while i < len(left) and j < len(right):
        lo, hi = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if lo <= hi:
            yield lo, hi
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1


def find_runs(follows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the places of the first and the last row of each run. `follows` says of each row but the first whether it
    belongs to the run of the one before."""
    firsts = np.concatenate(([0], np.flatnonzero(~follows) + 1))
    return firsts, np.concatenate((firsts[1:], [len(follows) + 1])) - 1
