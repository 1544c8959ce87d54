"""What the connections of one gateway share."""

from collections.abc import Container
from dataclasses import dataclass

from gateway.auth.admission import AccessControl
from gateway.auth.permissions import Permissions, Trusting, WithOrigins
from gateway.config.schema import GatewayConfig
from gateway.counters import Counters
from gateway.holdings import Holdings
from gateway.limits import Limits
from gateway.loop.pace import LineRooms, Paces, Shifts, TimeShares
from gateway.loop.timers import Timers
from gateway.multicast import Multicast
from gateway.network import Network
from gateway.sessions.copies import LinkCopies
from gateway.sessions.devices import Devices
from gateway.sessions.offers import Offers
from gateway.sessions.publishing import Publishing
from gateway.sessions.registry import Sessions
from gateway.sessions.subscribers import Subscribers
from gateway.sessions.wills import Wills
from gateway.store import Endings, MessageLog


@dataclass(frozen=True, slots=True)
class Common:
    """What all streams of a gateway share. ``streams`` has the services of each by name, "" for the default one."""

    access_control: AccessControl
    devices: Devices
    holdings: Holdings
    timers: Timers
    paces: Paces
    time_shares: TimeShares
    shifts: Shifts
    rooms: LineRooms
    streams: dict[str, "Services"]


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of the gateway that a connection uses in one stream; `Stream` makes them and opens and closes them.

    ``shared`` has the parts that are the same in all streams.
    """

    stream: str
    shared: Common
    config: GatewayConfig
    counters: Counters
    log: MessageLog
    network: Network
    multicast: Multicast
    copies: LinkCopies
    limits: Limits
    endings: Endings
    sessions: Sessions
    subscribers: Subscribers
    offers: Offers
    publishing: Publishing
    wills: Wills

    def rights_of_route(self, user: str | None, client_id: str, origins: Container[str] = ()) -> Permissions:
        """Returns what the next broker of a route may publish here: what the access rules let a user, also with
        identities of the origins; None: everything but the gateway's own topics, with any identity.
        """
        if user is None:
            return Trusting()
        return WithOrigins(self.shared.access_control.access, user, client_id, self.stream, origins)
