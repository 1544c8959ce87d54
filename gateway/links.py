"""What the dialling end of a link to a neighbour uses of the gateway."""

from gateway.network import Network
from gateway.network.announcements import Announced, BadAnnouncement, Changes, Heard, Mark, decode_mark
from gateway.network.conditions import Conditions
from gateway.network.disjoint import disjoint
from gateway.network.interest import Change, changes_for
from gateway.network.link import (
    ANEW_PROPERTY,
    HEARD_PROPERTY,
    INTEREST_TOPIC,
    LINK_PROPERTY,
    LINKS_TOPIC,
    RENEW_PROPERTY,
    BadLink,
    FilterSum,
    LinkSettings,
    check_conditions,
    decode_link,
    encode_link,
)
from gateway.network.topology import BadLinkStates
from gateway.network.zones import Side, Zone
from gateway.observe.links import Links, describe_all

__all__ = [
    "ANEW_PROPERTY",
    "HEARD_PROPERTY",
    "INTEREST_TOPIC",
    "LINKS_TOPIC",
    "LINK_PROPERTY",
    "RENEW_PROPERTY",
    "Announced",
    "BadAnnouncement",
    "BadLink",
    "BadLinkStates",
    "Change",
    "Changes",
    "Conditions",
    "FilterSum",
    "Heard",
    "LinkSettings",
    "Links",
    "Mark",
    "Network",
    "Side",
    "Zone",
    "changes_for",
    "check_conditions",
    "decode_link",
    "decode_mark",
    "describe_all",
    "disjoint",
    "encode_link",
]
