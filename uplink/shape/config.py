"""The ``[[route.shape]]`` tables of the gateway's configuration file."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

from gateway.routes import Checked, Count, NonEmpty, Selector
from uplink.shape.json_path import parse_path
from uplink.shape.template import parse_template
from wire.errors import WireError
from wire.topics import check_topic_filter, parse_shared

HEARTBEAT_S = 3600  # where the configuration does not say
CHECKS: dict[str, Callable[[str], object]] = {"where": Selector, "field": parse_path}


class ShapeConfig(Checked, forbid_unknown_fields=True, frozen=True):
    """A rule for some of a route's messages. The first rule whose `filter` matches a topic name applies, and no other.
    A message is sent if `where`, `every` and `dead_band` all let it through, in this order. [Select and shape what a
    route sends](../how-to/shape-a-route.md) has examples."""

    filter: str = "#"
    """The topic filter of the messages that the rule is for, by the names under which they are stored."""

    topic: NonEmpty | None = None
    """The topic name under which the route sends them. In it `{topic}` stands for the stored name, `{2}` for its second
    level, `{2-}` for its levels from the second on, `{gateway}` and `{route}` for these names. A message whose name
    cannot be rewritten so is set aside, as one that the broker refuses."""

    max_qos: int = 2
    """The highest QoS at which they go, 1 or 2."""

    retain: Literal["keep", "clear"] = "keep"
    """Whether they keep their RETAIN flag. With `"clear"` they go without it, so that the broker retains none."""

    where: NonEmpty | None = None
    """Sends only messages that pass this [selector](selectors.md), such as
    `json.value.temperature > 30 AND json.unit = 'C'`."""

    every: Count | None = None
    """Sends every n-th message of each topic name, beginning with the first; this is n."""

    dead_band: float | None = None
    """Sends a message only if a number in its payload differs by at least this from the one that was sent last for its
    topic name. If the payload is a list, such as SenML, each element's number is compared with the last one whose
    element had the same `n`. A message without the number, or with a payload of more than 64 KiB, is sent."""

    field: NonEmpty | None = None
    """Where this number is in the JSON payload, such as `value.temperature`. If it is left out, the payload itself is
    the number."""

    heartbeat_s: Count | None = None
    """The longest time, in seconds, between two messages of a topic name that `dead_band` lets through, by the times at
    which the first gateway accepted them; 3600 if it is left out. The first message after so long is sent, whatever its
    number is."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        yield from _errors_in_topics(values)
        if values.get("max_qos", 2) not in (1, 2):
            yield "max_qos", "expected 1 or 2: the broker does not acknowledge messages of QoS 0, so they could be lost"
        for key, parse in CHECKS.items():
            try:
                if values.get(key):
                    parse(values[key])
            except ValueError as error:
                yield key, str(error)
        if (band := values.get("dead_band")) is not None and not 0 < band < float("inf"):
            yield "dead_band", "expected a number above 0"
        for key in ("field", "heartbeat_s"):
            if values.get(key) is not None and values.get("dead_band", 1.0) is None:
                yield key, "it needs dead_band"


def _errors_in_topics(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    try:
        check_topic_filter(values.get("filter", "#"))
        if parse_shared(values.get("filter", "#"))[0] is not None:
            yield "filter", "expected a topic filter without $share"
    except WireError as error:
        yield "filter", str(error)
    try:
        parse_template(values.get("topic") or "{topic}")
    except ValueError as error:
        yield "topic", str(error)
