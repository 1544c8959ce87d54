"""When the ends of links are told what is wanted."""

from collections.abc import Sequence
from typing import cast

from gateway.network.ends import LinkEnd
from gateway.network.interest import Change
from gateway.network.network import Network
from gateway.network.zones import LOCAL, Zone


class _End:
    """An end of a link that notes what it is told."""

    name = "to-b"

    def __init__(self) -> None:
        self.told: list[str] = []

    def tell(self, changes: Sequence[Change]) -> None:
        self.told += [change.topic_filter for change in changes]


async def test_a_link_is_told_a_filter_before_anybody_hears_that_it_was_told() -> None:
    """Otherwise a sweep would take the filter for one that has kept the copies below it all the time."""
    network, end = Network("a"), _End()
    network.links.up["to-b"] = cast("LinkEnd", end)
    network.want("t/+", LOCAL)
    assert list(network.told_of("t/1", Zone().side("to-b"))) == ["t/+"]
    assert end.told == ["t/+"]
