"""The link whose other end is a client: what only the session of a neighbour has."""

from gateway.message import Message
from gateway.network.conditions import Conditions
from gateway.network.link import FilterSum, LinkSettings
from gateway.network.zones import Side
from gateway.store import drops


class NeighbourLink:
    """A link that a neighbour dials, with these settings.

    Args:
        settings: its settings, as the neighbour has them.
        side: the side of this gateway's network that it is on.
        conditions: the selectors of both ends.
        asked: sums up the topic filters that the neighbour's session has.

    ``is_aside`` says that the link closes a circle, so that no new messages go over it.
    """

    __slots__ = ("asked", "conditions", "is_aside", "settings", "side")

    def __init__(self, settings: LinkSettings, side: Side, conditions: Conditions, asked: FilterSum) -> None:
        self.settings = settings
        self.side = side
        self.conditions = conditions
        self.asked = asked
        self.is_aside = False

    def reason_to_drop(self, message: Message) -> str | None:
        """Returns why a message does not go over the link, None if it does."""
        return None if self.conditions.passes(message) else drops.FILTERED
