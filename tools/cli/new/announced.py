"""Gateways that announce themselves by mDNS, as DNS-SD services [RFC 6762, RFC 6763]."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from zeroconf import InterfaceChoice, ServiceBrowser, ServiceStateChange, Zeroconf

from host.server import Server
from tools.cli.columns import printable
from tools.cli.new.answers import AnswerError

PLAIN, ENCRYPTED = "_mqtt._tcp.local.", "_secure-mqtt._tcp.local."
LOOK_S, ASK_MS = 2.0, 1000


@dataclass(frozen=True)
class Gateway:
    """What announces itself: its name, and where it is."""

    name: str
    server: Server

    def __str__(self) -> str:
        return f"{printable(self.name)}, {self.server}, {self.trust}"

    @property
    def trust(self) -> str:
        """Says by what a board knows that this is the gateway: anything in a network can announce itself."""
        if self.server.is_encrypted:
            return "with TLS: its certificate decides whether a board takes it for the gateway"
        return "without TLS: anything in this network can pose as it, and gets readings and password"


def look(seconds: float = LOOK_S, interfaces: Sequence[str] | None = None) -> list[Gateway]:
    """Returns the MQTT services that answer in this time, those with TLS first.

    Args:
        seconds: how long to wait.
        interfaces: addresses of the interfaces on which to ask; None for all.

    Raises:
        AnswerError: this computer has no network for it.
    """
    seen: set[tuple[str, str]] = set()

    def note(zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is not ServiceStateChange.Removed:
            seen.add((service_type, name))

    try:
        with Zeroconf(interfaces=InterfaceChoice.All if interfaces is None else list(interfaces)) as zeroconf:
            browser = ServiceBrowser(zeroconf, [PLAIN, ENCRYPTED], handlers=[note])
            time.sleep(seconds)
            browser.cancel()
            found = [_resolved(zeroconf, kind, name) for kind, name in sorted(seen, reverse=True)]
    except OSError as error:
        raise AnswerError(f"gateways cannot be looked for by mDNS: {error.strerror or error}") from error
    return [one for one in found if one is not None]


def the_only_one(found: Sequence[Gateway]) -> Gateway:
    """Raises AnswerError unless exactly one announces itself."""
    if len(found) != 1:
        names = "; ".join(map(str, found)) or "none does"
        raise AnswerError(f"--gateway mdns: expected one gateway that announces itself in this network: {names}")
    return found[0]


def _resolved(zeroconf: Zeroconf, kind: str, name: str) -> Gateway | None:
    info = zeroconf.get_service_info(kind, name, ASK_MS)
    addresses = [] if info is None else [one for one in info.parsed_addresses() if ":" not in one]
    if info is None or not addresses or not info.port:
        return None
    return Gateway(name.removesuffix(f".{kind}"), Server(addresses[0], info.port, kind == ENCRYPTED, ""))
