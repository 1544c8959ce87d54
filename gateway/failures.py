"""Failed logins: how many there were lately, by where they came from."""

import ipaddress
from collections import OrderedDict

SOURCES_MAX = 10_000


class Failures:
    """Counts failures by source; a count falls by one each ``forget_s``.

    Args:
        most: so many make a source wait.
        forget_s: seconds after which one of a source's failures counts no more.
    """

    def __init__(self, most: int, forget_s: float) -> None:
        self._most = most
        self._forget_s = forget_s
        self._counts: OrderedDict[tuple[str, ...], tuple[float, float]] = OrderedDict()  # count, and when it was so

    def too_many(self, source: tuple[str, ...], now_s: float) -> bool:
        return self._count(source, now_s) > self._most - 1

    def note(self, source: tuple[str, ...], now_s: float) -> None:
        """One more. The sources that have been quiet the longest are forgotten, for memory's sake."""
        self._counts[source] = self._count(source, now_s) + 1, now_s
        self._counts.move_to_end(source)
        if len(self._counts) > SOURCES_MAX:
            self._counts.popitem(last=False)

    def _count(self, source: tuple[str, ...], now_s: float) -> float:
        count, since_s = self._counts.get(source, (0.0, now_s))
        return max(0.0, count - (now_s - since_s) / self._forget_s)


def network_of(host: str) -> str:
    """Returns what one person has of addresses: an IPv4 address, an IPv6 /64; anything else is itself."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))
