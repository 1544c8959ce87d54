from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cloud.landing import intervals

spans = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair))), max_size=12)
merged = spans.map(intervals.merge)


def numbers(found: intervals.Intervals) -> set[int]:
    return {number for lo, hi in found for number in range(lo, hi + 1)}


def is_normal(found: intervals.Intervals) -> bool:
    ends = [end for span in found for end in span]
    touching = any(left[1] + 1 >= right[0] for left, right in pairwise(found))
    return ends == sorted(ends) and not touching


@given(spans)
def test_merge_keeps_the_numbers_in_the_fewest_intervals(given_spans: intervals.Intervals) -> None:
    found = intervals.merge(given_spans)
    assert numbers(found) == numbers(given_spans)
    assert is_normal(found)


@given(spans)
def test_overlaps_are_the_numbers_that_come_twice(given_spans: intervals.Intervals) -> None:
    every = [number for span in given_spans for number in numbers([span])]
    found = intervals.overlaps(given_spans)
    assert numbers(found) == {number for number in every if every.count(number) > 1}
    assert is_normal(found)


@given(merged, merged)
def test_intersect_and_subtract_are_those_of_sets(left: intervals.Intervals, right: intervals.Intervals) -> None:
    assert numbers(intervals.intersect(left, right)) == numbers(left) & numbers(right)
    assert numbers(intervals.subtract(left, right)) == numbers(left) - numbers(right)


@given(merged)
def test_count_is_how_many_numbers_there_are(found: intervals.Intervals) -> None:
    assert intervals.count(found) == len(numbers(found))
