"""The keys of the configuration file for networks of gateways. The reference page is made of it."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from gateway.config.errors import Checked
from gateway.config.kinds import NAME_BYTES_MAX, Count, NonEmpty, WhenFull
from gateway.selectors import parse_selector
from wire.errors import WireError
from wire.topics import check_topic_filter, parse_shared

ZONE_BYTES_MAX = 128
Hops = Literal["multi", "one"]
Mode = Literal["active-active", "active-passive"]
ZoneName = Annotated[str, msgspec.Meta(min_length=1, max_length=ZONE_BYTES_MAX)]


class SelectConfig(Checked, forbid_unknown_fields=True, frozen=True):
    """A condition on messages that go over a link. A message whose topic name several filters match has to pass all of
    their selectors. What is held back leaves a range `filtered`."""

    topic: str
    """The topic filter of the messages that the condition is for; all others pass."""

    select: NonEmpty
    """The [selector](selectors.md) that these messages have to pass."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        yield from errors_in_filter("topic", values.get("topic", "#"))
        try:
            if values.get("select"):
                parse_selector(values["select"])
        except ValueError as error:
            yield "select", str(error)


class NetworkConfig(Checked, forbid_unknown_fields=True, frozen=True):
    """What this gateway does as a part of a [network of gateways](network.md)."""

    summary: tuple[str, ...] = ()
    """Topic filters that this gateway always asks its neighbours for, whether a client wants them or not. Each stands
    for all filters that it covers: these are not told."""

    streams: Literal["own", "any"] = "own"
    """Which [streams](../how-to/streams.md#streams-of-neighbours) the gateway has: `"own"`, those of its `[[stream]]`
    tables. `"any"`, also each that a neighbour has, while these are fewer
    than 8, with the defaults of `[[stream]]`. It keeps them when
    the neighbour is gone, also over a start."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for topic_filter in values.get("summary", ()):
            yield from errors_in_filter("summary", topic_filter)


class NeighbourConfig(Checked, forbid_unknown_fields=True, frozen=True):
    """A neighbour that connects to this gateway. A neighbour without such a table has the defaults; either way a
    [rule](../how-to/accounts.md#let-a-gateway-be-a-neighbour) has to allow it. The neighbour's route has the same
    `zone`, `hops` and `mode`, or its login is refused."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_BYTES_MAX)]
    """The neighbour's name."""

    zone: ZoneName = "default"
    """The zone of the link."""

    hops: Hops = "multi"
    """`"multi"`: what comes over a link of the zone goes on over its other links. `"one"`: it does not, as each gateway
    of the zone has a link to each other one. A zone is the same at all its gateways."""

    mode: Mode = "active-active"
    """What happens while the neighbour is not connected. `"active-active"`: this gateway keeps its interest, and the
    messages for it. `"active-passive"`: messages for it are dropped, and leave ranges `unrouted`."""

    outgoing: list[SelectConfig] = msgspec.field(default_factory=list)
    """Conditions on the messages that go to the neighbour, as `[[neighbour.outgoing]]`."""

    incoming: list[SelectConfig] = msgspec.field(default_factory=list)
    """Conditions on the messages that come from the neighbour, as `[[neighbour.incoming]]`. It evaluates them, so that
    what does not pass does not come."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        return iter(())


class TopicConfig(Checked, forbid_unknown_fields=True, frozen=True):
    """The limits of what may wait for one consumer (a session, a share group or a route) below one topic filter:
    messages that are in flight to it or not sent yet. A message counts for each of these tables whose filter matches
    its topic name, and the first of them at a limit decides. These limits hold beside those of `[queue]` and of a
    route."""

    filter: str
    """The topic filter."""

    max_messages: Count | None = None
    """The most messages."""

    max_bytes: Count | None = None
    """The most bytes, counted as for `[queue]`."""

    when_full: WhenFull = "discard_old"
    """What happens to the next message below the filter when a consumer is at a limit, as for `[queue]`.
    `"discard_old"` drops the oldest messages below the filter that wait for this consumer, as soon as the consumer
    comes to them; until then they do not count for `[queue]` or a route's limits. `"reject_incoming"` refuses the
    message (0x97), and `"flow_control"` delays the acknowledgement: no consumer gets it meanwhile. A route's broker
    always waits."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        yield from errors_in_filter("filter", values.get("filter", "#"))
        if values.get("max_messages", 0) is None and values.get("max_bytes", 0) is None:
            yield "max_messages", "expected max_messages, max_bytes or both"


def errors_in_filter(key: str, topic_filter: str) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with the topic filter at a key."""
    try:
        check_topic_filter(topic_filter)
    except WireError as error:
        yield key, str(error)
        return
    if parse_shared(topic_filter)[0] is not None:
        yield key, f"{topic_filter!r}: expected a topic filter without $share"


def names_twice(neighbours: list[NeighbourConfig]) -> Iterator[tuple[int, str]]:
    """Yields the place and name of each neighbour that an earlier table has too."""
    seen: set[str] = set()
    for place, one in enumerate(neighbours):
        if one.name in seen:
            yield place, one.name
        seen.add(one.name)
