"""Topic filters as sets of topic names [section 4.7]: intersection and inclusion."""

Levels = tuple[str, ...]
SAME = {"#": ("+", "#"), "/#": ("", "+", "#")}
"""Filters with a ``#`` that stands for one level at least, since no topic name is empty [MQTT-4.7.3-1]."""


def split(topic_filter: str) -> Levels:
    """Returns the levels of a valid filter or name; filters that match the same names have the same levels."""
    return SAME.get(topic_filter) or tuple(topic_filter.split("/"))


def takes(wanted: Levels, name: Levels) -> bool:
    """Whether a filter matches a topic name."""
    if wanted[0] == "+" and name[0].startswith("$"):
        return False  # [MQTT-4.7.2-1]
    wanted, is_open = _ends(wanted)
    if is_open:
        name = name[: len(wanted)]  # "a/#" matches "a" too
    return len(wanted) == len(name) and all(map(_takes_level, wanted, name))


def common(left: Levels, right: Levels) -> Levels | None:
    """Returns the filter of the names that both filters match; None if there are none."""
    if _keeps_apart(left[0], right[0]):
        return None
    (short, short_is_open), (long, long_is_open) = sorted((_ends(left), _ends(right)), key=lambda one: len(one[0]))
    if len(short) < len(long) and not short_is_open:
        return None
    levels = list(map(_common_level, short, long))
    if None in levels:
        return None
    rest = ("#",) if short_is_open and long_is_open else ()
    return (*(level for level in levels if level is not None), *long[len(short) :], *rest)


def holds(outer: Levels, inner: Levels) -> bool:
    """Whether ``outer`` matches every name that ``inner`` matches."""
    return common(outer, inner) == inner


def _ends(topic_filter: Levels) -> tuple[Levels, bool]:
    """Returns a filter's levels without its "#", and whether it has one."""
    return (topic_filter[:-1], True) if topic_filter[-1] == "#" else (topic_filter, False)


def _takes_level(wanted: str, level: str) -> bool:
    return wanted in ("+", level)


def _common_level(left: str, right: str) -> str | None:
    if left == "+":
        return right
    return left if right in ("+", left) else None


def _keeps_apart(left: str, right: str) -> bool:
    """Whether one level is a wildcard and the other begins with $: no first level matches both."""
    return (left == "+" and right.startswith("$")) or (right == "+" and left.startswith("$"))
