"""The kinds of values that many keys of the configuration file have."""

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec

NAME_BYTES_MAX = 128
"""The most bytes of a gateway's name: a client identifier of ``wire.identity.NAME_BYTES_MAX`` also has a route's."""

NOT_IN_NAMES = "/+#"


def errors_in_gateway_name(name: str) -> Iterator[str]:
    """Yields what is wrong with the name of a gateway, which is a level of topic names."""
    if wrong := "".join(dict.fromkeys(one for one in name if one in NOT_IN_NAMES or not one.isprintable())):
        yield f"{name!r}: has {wrong!r}, expected a name without '/', '+', '#' and control characters"


def errors_in_networks(networks: Sequence[str]) -> Iterator[str]:
    """Yields what is wrong with IP addresses and networks."""
    for one in networks:
        try:
            ipaddress.ip_network(one)
        except ValueError as error:
            yield f'{error}, expected an IP address or a network such as "10.0.0.0/8"'


NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=1)]
WhenFull = Literal["reject_incoming", "discard_old", "flow_control"]
