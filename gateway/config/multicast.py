"""The keys of the configuration file for multicast groups. The reference page is made of it."""

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

import msgspec

from gateway.config.errors import Checked
from gateway.config.kinds import NonEmpty
from gateway.config.network import errors_in_filter

ADMINISTRATIVE = ipaddress.IPv4Network("239.0.0.0/8")  # RFC 2365: no group of another site or of the Internet


class MulticastConfig(Checked, forbid_unknown_fields=True, frozen=True):
    """A [multicast group](multicast.md): messages that many receivers of the LAN get in one UDP datagram, at QoS 0. Its
    receivers get the keys over TLS, so a listener needs `tls`. Datagrams are authentic and not secret. The messages are
    those of the default stream."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[\w.-]{1,64}$")]
    """The group's name: letters, digits, `_`, `.` and `-`."""

    address: NonEmpty
    """An IPv4 address of 239.0.0.0/8, which stays within the site."""

    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)]
    """The UDP port."""

    topics: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """The topic filters whose messages go to the group. They count as wanted here, so neighbours send what they match.
    A receiver needs the right to subscribe to all of them."""

    interface: NonEmpty | None = None
    """The network interface on which the datagrams leave, such as `"eth0"`. Without it the system's routes decide."""

    ttl: Annotated[int, msgspec.Meta(ge=1, le=255)] = 1
    """How many networks a datagram may cross. With 1 no router passes it on."""

    rotate_s: Annotated[int, msgspec.Meta(ge=60)] = 3600
    """After how many seconds the next key is used. A receiver that leaves, or loses its right, can read and forge
    datagrams for this time at most; SIGHUP begins the next key at once."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for topic_filter in values.get("topics", ()):
            yield from errors_in_filter("topics", topic_filter)
            if topic_filter.startswith("$"):
                yield "topics", f"{topic_filter!r}: what begins with $ does not go over multicast"
        if "address" in values and not _is_administrative(values["address"]):
            yield "address", f"{values['address']!r}: expected an IPv4 address of {ADMINISTRATIVE}"


def errors_among(groups: Sequence[MulticastConfig], listeners: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Yields the keys and texts of what is wrong between multicast groups, and between these and the listeners."""
    names, places = set(), set()
    for number, group in enumerate(groups):
        if group.name in names:
            yield f"multicast[{number}].name", f"two groups are named {group.name!r}"
        if (group.address, group.port) in places:
            yield f"multicast[{number}].port", f"an earlier group has {group.address}:{group.port} already"
        names.add(group.name)
        places.add((group.address, group.port))
    if groups and not any(getattr(listener, "tls", None) for listener in listeners):
        yield "multicast[0]", "no listener has tls, over which receivers get their keys"


def _is_administrative(address: str) -> bool:
    try:
        return ipaddress.IPv4Address(address) in ADMINISTRATIVE
    except ValueError:
        return False
