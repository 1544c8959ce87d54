"""The topic filters of what a route receives: no message may come once for each of two."""

from itertools import product

from hypothesis import example, given
from hypothesis import strategies as st

from uplink.config.route import RouteConfig
from wire.topics import matches

LEVELS = ["a", "b", "", "$x"]
NAMES = [name for depth in (1, 2, 3, 4) for levels in product(LEVELS, repeat=depth) if (name := "/".join(levels))]


def is_filter(levels: list[str]) -> bool:
    return "#" not in levels[:-1] and levels != [""]


FILTERS = st.lists(st.sampled_from([*LEVELS, "+", "#"]), min_size=1, max_size=3).filter(is_filter).map("/".join)


@given(FILTERS, FILTERS)
@example("/#", "+")
def test_two_filters_are_refused_if_a_topic_name_matches_both(first: str, second: str) -> None:
    errors = list(RouteConfig.errors_in({"direction": "in", "subscribe": (first, second)}))
    is_refused = any("match the same topic names" in text for key, text in errors if key == "subscribe")
    assert is_refused is any(matches(first, name) and matches(second, name) for name in NAMES)
