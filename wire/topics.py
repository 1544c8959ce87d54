"""Topic names and topic filters (section 4.7) and shared subscriptions (section 4.8.2)."""

from wire.errors import WireError
from wire.primitives import encode_string


def check_topic_name(name: str) -> None:
    """Raises WireError unless a PUBLISH may have the topic `name`."""
    if not name:
        raise WireError("a topic name is empty [MQTT-4.7.3-1]")
    if "+" in name or "#" in name:
        raise WireError(f"topic name {name!r} holds a wildcard [MQTT-3.3.2-2]")
    encode_string(name)


def check_topic_filter(topic_filter: str) -> None:
    """Raises WireError unless a SUBSCRIBE or UNSUBSCRIBE may have this filter."""
    encode_string(topic_filter)
    if topic_filter.startswith("$share/"):
        group, slash, rest = topic_filter[7:].partition("/")
        if not group or "+" in group or "#" in group:
            raise WireError(f"{topic_filter!r} has no valid share name [MQTT-4.8.2-1, MQTT-4.8.2-2]")
        if not slash or not rest:
            raise WireError(f"{topic_filter!r} has no filter behind its share name [MQTT-4.8.2-2]")
        topic_filter = rest
    if not topic_filter:
        raise WireError("a topic filter is empty [MQTT-4.7.3-1]")
    if "+" in topic_filter or "#" in topic_filter:
        _check_wildcards(topic_filter)


def _check_wildcards(topic_filter: str) -> None:
    levels = topic_filter.split("/")
    for level in levels:
        if "+" in level and level != "+":
            raise WireError(f"{topic_filter!r}: + must be a whole level [MQTT-4.7.1-2]")
        if "#" in level and level != "#":
            raise WireError(f"{topic_filter!r}: # must be a whole level [MQTT-4.7.1-1]")
    if "#" in levels[:-1]:
        raise WireError(f"{topic_filter!r}: # must be the last level [MQTT-4.7.1-1]")


def matches(topic_filter: str, topic_name: str) -> bool:
    """Returns whether a valid filter (without its $share part) matches a valid name, by the rules of section 4.7."""
    if topic_name[:1] == "$" and topic_filter[:1] in ("+", "#"):
        return False  # [MQTT-4.7.2-1]
    wanted = topic_filter.split("/")
    levels = topic_name.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        levels = levels[: len(wanted)]  # "a/#" matches the parent level "a" too
    if len(wanted) != len(levels):
        return False
    return all(want in ("+", level) for want, level in zip(wanted, levels))


def parse_shared(topic_filter: str) -> tuple[str | None, str]:
    """Splits a valid "$share/group/filter" into ("group", "filter"); returns (None, filter) for any other filter."""
    if not topic_filter.startswith("$share/"):
        return None, topic_filter
    group, _, rest = topic_filter[7:].partition("/")
    return group, rest
