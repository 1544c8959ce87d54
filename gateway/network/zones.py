"""Zones: over which links a message that came over one link may leave, as in TIBCO EMS.

A zone is a set of links. In a multi-hop zone messages go on from link to link. In a one-hop zone a message that came
over one of its links leaves over none of them, as each gateway has a link to each other one. Into another zone each
message goes as if it had been published here. Nothing of this is on the wire: each gateway decides for its own links.

Source: TIBCO Enterprise Message Service, "Zones".
"""

from typing import NamedTuple

Side = tuple[str, str]
"""The links that hear nothing from each other: one link of a multi-hop zone, or all links of a one-hop zone."""

LOCAL: Side = ("local", "")
"""The clients of this gateway. They hear from all links, and all links hear from them."""


class Zone(NamedTuple):
    """A zone as one of its links has it."""

    name: str = "default"
    is_one_hop: bool = False

    def side(self, link: str) -> Side:
        """Returns the side of one of its links."""
        return ("zone", self.name) if self.is_one_hop else ("link", link)
