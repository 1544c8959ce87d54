"""What two gateways tell each other of the link between them, in the CONNECT and in its CONNACK.

Both carry one user property ``hf-link``, a JSON object::

    {"version": 1, "name": "site-a", "zone": "plant", "hops": "multi", "mode": "active-active", "streams": [""],
     "incoming": [{"topic": "orders/#", "select": "region = 'EU'"}], "asked": [2, 1234567]}

``name`` is the sender's. Zone, hops and mode are the same at both ends, or the login is refused. ``incoming`` are the
conditions on messages that come to the sender: the receiver of the property evaluates them. ``asked``, in a CONNACK
alone, sums up the topic filters that the session has: see `FilterSum`.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Literal

import msgspec

from gateway.config.kinds import NAME_BYTES_MAX
from gateway.config.network import ZONE_BYTES_MAX, Hops, Mode, NeighbourConfig, SelectConfig
from gateway.loop.pace import in_slices
from gateway.network.zones import Side, Zone
from gateway.selectors import BadSelector, Selector, parse_selector
from wire.errors import WireError
from wire.identity import check_name
from wire.reserved import RESERVED_TOPICS
from wire.topics import check_topic_filter

LINK_PROPERTY, HEARD_PROPERTY, RENEW_PROPERTY = "hf-link", "hf-heard", "hf-renew"
ANEW_PROPERTY = "hf-anew"
"""In a CONNECT: the sender's packet identifiers begin anew, and the session goes on without those of earlier ones."""
INTEREST_TOPIC = RESERVED_TOPICS + "interest"
"""The topic of the announcements in which a gateway tells a neighbour that dials it what it wants."""
LINKS_TOPIC = RESERVED_TOPICS + "links"
"""The topic of link states, both ways."""

VERSION = 1
SELECTS_MAX = 100
TEXT_MAX = 16 * 1024
"""Characters of the property: the selectors in it are looked at for each message."""
_SUM_MASK = (1 << 64) - 1


class BadLink(ValueError):
    """A user property of a link cannot be taken. The text says why."""


class LinkSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The settings of a link, as one of its ends has them.

    ``name`` is the gateway's that sends them. ``asked`` is the sum of the topic filters that the session has.
    """

    name: str
    zone: str = "default"
    hops: Hops = "multi"
    mode: Mode = "active-active"
    streams: tuple[str, ...] = ("",)
    incoming: tuple[SelectConfig, ...] = ()
    asked: tuple[int, int] = (0, 0)
    version: Literal[1] = 1

    def side(self, link: str) -> Side:
        """Returns the side of this gateway's network that a link with these settings is on."""
        return self.as_zone.side(link)

    @property
    def as_zone(self) -> Zone:
        """The zone of the link."""
        return Zone(self.zone, self.hops == "one")

    def disagreement(self, other: "LinkSettings") -> str:
        """Returns in what the other end of a link differs, "" if it does not."""
        differing = [
            f"{key} is {getattr(self, key)!r} here and {getattr(other, key)!r} at {other.name!r}"
            for key in ("zone", "hops", "mode")
            if getattr(self, key) != getattr(other, key)
        ]
        return "; ".join(differing)


class FilterSum:
    """A sum of topic filters that changes with each of them, so that two ends find out whether they have the same.

    It is their number, and the sum of BLAKE2b hashes of 8 bytes of them modulo 2^64 [RFC 7693].
    """

    def __init__(self, filters: Iterable[str] = ()) -> None:
        self.count = self._hashes = 0
        for topic_filter in filters:
            self.add(topic_filter)

    def add(self, topic_filter: str) -> None:
        self.count += 1
        self._hashes = (self._hashes + _hash(topic_filter)) & _SUM_MASK

    def remove(self, topic_filter: str) -> None:
        self.count -= 1
        self._hashes = (self._hashes - _hash(topic_filter)) & _SUM_MASK

    @property
    def value(self) -> tuple[int, int]:
        return self.count, self._hashes


def listening_settings(gateway: str, neighbour: NeighbourConfig, streams: tuple[str, ...] = ("",)) -> LinkSettings:
    """Returns the settings of a link to a neighbour that dials this gateway, which has these streams."""
    one = neighbour
    return LinkSettings(gateway, one.zone, one.hops, one.mode, streams, tuple(one.incoming))


def encode_link(settings: LinkSettings) -> str:
    """Returns the value of the user property."""
    return msgspec.json.encode(settings).decode()


def decode_link(text: str) -> LinkSettings:
    """Returns the settings that a user property has. Raises BadLink.

    It does not parse their selectors, which takes long: `read_conditions` does.
    """
    if len(text) > TEXT_MAX:
        raise BadLink(f"{LINK_PROPERTY} has {len(text)} characters, expected {TEXT_MAX} at most")
    try:
        settings = msgspec.json.decode(text, type=LinkSettings)
        check_name("the gateway's name", settings.name)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadLink(f"{LINK_PROPERTY}: {error}") from None
    if not settings.name or len(settings.name.encode()) > NAME_BYTES_MAX:
        raise BadLink(f"{LINK_PROPERTY}: expected a name of 1 to {NAME_BYTES_MAX} bytes")
    if not 0 < len(settings.zone) <= ZONE_BYTES_MAX:
        raise BadLink(f"{LINK_PROPERTY}: expected a zone of 1 to {ZONE_BYTES_MAX} characters")
    if len(settings.incoming) > SELECTS_MAX:
        raise BadLink(f"{LINK_PROPERTY}: {len(settings.incoming)} conditions, expected {SELECTS_MAX} at most")
    for one in settings.incoming:
        try:
            check_topic_filter(one.topic)
        except WireError as error:
            raise BadLink(f"{LINK_PROPERTY}: incoming {one.topic[:100]!r}: {error}") from None
    return settings


async def read_conditions(settings: LinkSettings) -> list[Selector]:
    """Returns the selectors in settings, read in slices of time. Raises BadLink.

    While they are kept, `Conditions` of these settings are made at once.
    """
    return [_read_selector(one) async for one in in_slices(settings.incoming)]


def check_conditions(settings: LinkSettings) -> None:
    """Reads the selectors in settings at once: they come from the store or from a gateway that this one has dialled.

    Raises BadLink.
    """
    for one in settings.incoming:
        _read_selector(one)


def _read_selector(one: SelectConfig) -> Selector:
    try:
        return parse_selector(one.select)
    except BadSelector as error:
        raise BadLink(f"{LINK_PROPERTY}: incoming {one.topic[:100]!r}: {error}") from None


def _hash(topic_filter: str) -> int:
    return int.from_bytes(blake2b(topic_filter.encode(), digest_size=8).digest(), "big")
