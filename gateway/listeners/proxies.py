"""The proxies in front of a listener, and the client that they name in the header X-Forwarded-For."""

import ipaddress
import re
from collections.abc import Sequence

PROXIES_MAX = 20  # one behind another
WITH_PORT = re.compile(r"\[(?P<six>[^\]]*)\](?::\d+)?|(?P<four>[\d.]+):\d+")


class Proxies:
    """The addresses of the proxies that are believed.

    Args:
        networks: IP addresses and networks, such as ``10.0.0.0/8``. Raises ValueError.
    """

    def __init__(self, networks: Sequence[str]) -> None:
        self._networks = tuple(ipaddress.ip_network(one) for one in networks)

    def __contains__(self, host: str) -> bool:
        """Whether an IP address belongs to a proxy."""
        if not self._networks:
            return False
        address = address_of(host)
        return any(address in network for network in self._networks)


def address_of(host: str | bytes) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Returns an IP address from its text or its bytes; an IPv4 address where it is written as one of IPv6.

    Raises:
        ValueError: it is none.
    """
    address = ipaddress.ip_address(host.partition("%")[0] if isinstance(host, str) else host)
    return getattr(address, "ipv4_mapped", None) or address


def forwarded_for(headers: Sequence[str], proxies: Proxies) -> str | None:
    """Returns the client of a request that came from a proxy; None if the proxy names none.

    Each proxy adds the address of which it has the request, so the last address that is no proxy's is the client. What
    stands before it is the client's own word, and is not looked at.

    Args:
        headers: the values of X-Forwarded-For.
        proxies: the proxies that are believed.

    Raises:
        ValueError: an entry is no address, or there are more proxies than ``PROXIES_MAX``.
    """
    client = None
    looked_at = 0
    for header in reversed(headers):
        rest = header
        while rest:
            looked_at += 1
            if looked_at > PROXIES_MAX:
                raise ValueError(f"more than {PROXIES_MAX} proxies")
            rest, _, entry = rest.rpartition(",")
            found = WITH_PORT.fullmatch(entry.strip())
            client = str(address_of((found["six"] or found["four"]) if found else entry.strip()))
            if client not in proxies:
                return client
    return client
