"""A client that receives multicast groups: what it has asked for over this connection."""

import logging

from gateway.auth.permissions import Permissions
from gateway.connection.accepted import Accepted
from gateway.connection.services import Services
from gateway.log_fields import about
from gateway.message import Message
from gateway.multicast import BadMulticast, MulticastGroup
from gateway.sessions.session import Session
from gateway.store import Grant
from gateway.subscriptions import size_of
from wire.codec.packets import NO_LOCAL, Subscribe
from wire.identity import find_user_property
from wire.multicast import DATAGRAM_MAX, MULTICAST_PROPERTY
from wire.properties import REQUEST_PROBLEM_INFORMATION, USER_PROPERTY
from wire.topics import matches, parse_shared

FILTERS_MOST = 100  # of one client

logger = logging.getLogger(__name__)


class MulticastMember:
    """One client's multicast subscriptions. They end with its connection, and are not stored.

    Args:
        services: the parts of the gateway that it uses.
        session: the client's session.
        permissions: what the client may receive.
        accepted: its connection.
    """

    __slots__ = ("_accepted", "_groups", "_permissions", "_services", "_session")

    def __init__(self, services: Services, session: Session, permissions: Permissions, accepted: Accepted) -> None:
        self._services = services
        self._session = session
        self._permissions = permissions
        self._accepted = accepted
        self._groups: dict[str, MulticastGroup] = {}  # by the topic filter that was asked for

    def asks(self, packet: Subscribe) -> bool:
        """Whether a SUBSCRIBE asks for multicast."""
        return find_user_property(packet.properties, MULTICAST_PROPERTY) is not None

    def choose(self, packet: Subscribe) -> MulticastGroup:
        """Returns the group that a SUBSCRIBE asks for. Raises BadMulticast if the client cannot have it."""
        names = [value for name, value in packet.properties.get(USER_PROPERTY, ()) if name == MULTICAST_PROPERTY]
        topic_filters = [topic_filter for topic_filter, _ in packet.filters]
        if len(names) > 1:
            raise BadMulticast(f"expected one user property {MULTICAST_PROPERTY}, not {len(names)}")
        if not self._accepted.port.visitor.tls:
            raise BadMulticast("a key is handed out over TLS alone")
        if self._session.link is not None:
            raise BadMulticast("a neighbour takes no multicast")
        if any(parse_shared(one)[0] is not None for one in topic_filters):
            raise BadMulticast("a shared subscription does not go over multicast")
        if any(options & NO_LOCAL for _, options in packet.filters):
            raise BadMulticast("No Local cannot be kept over multicast")
        if self._accepted.protocol.maximum_packet_size_peer < DATAGRAM_MAX:
            raise BadMulticast(f"expected a Maximum Packet Size of {DATAGRAM_MAX} or more")
        connect = self._accepted.protocol.connect_packet
        if connect is not None and not connect.properties.get(REQUEST_PROBLEM_INFORMATION, 1):
            raise BadMulticast("expected a CONNECT whose Request Problem Information is 1 [MQTT-3.1.2-29]")
        group = self._services.multicast.group_for(names[0], topic_filters)
        if not self.may_have(group.config.topics):
            raise BadMulticast(f"the access rules do not allow all topics of the multicast group {group.config.name!r}")
        new = {one for one in topic_filters if one not in self._groups}
        if len(self._groups) + len(new) > FILTERS_MOST:
            raise BadMulticast(f"a client has at most {FILTERS_MOST} filters over multicast")
        if not self._session.holding.fits(sum(map(size_of, new))):
            raise BadMulticast("the client's memory is used up (limits.kept_bytes)")
        return group

    def join(self, group: MulticastGroup, topic_filters: list[str]) -> None:
        """The client gets what these filters match over multicast."""
        for topic_filter in topic_filters:
            self.leave(topic_filter)
            self._groups[topic_filter] = group
            self._session.holding.add(size_of(topic_filter))
        group.join(self)

    def leave(self, topic_filter: str) -> bool:
        """The client does not get this filter over multicast any more; returns whether it did."""
        group = self._groups.pop(topic_filter, None)
        if group is None:
            return False
        self._session.holding.add(-size_of(topic_filter))
        if group not in self._groups.values():
            group.leave(self)
        return True

    def stop(self) -> None:
        """The connection has ended."""
        for topic_filter in list(self._groups):
            self.leave(topic_filter)

    def hand_out(self, packet: Subscribe) -> list[tuple[str, str]]:
        """Returns the user properties with the keys for the SUBACK of a SUBSCRIBE that was granted."""
        granted = [self._groups[one] for one, _ in packet.filters if one in self._groups] if self.asks(packet) else []
        if not granted:
            return []
        group = granted[0]
        client = {"client": self._session.client_id, "user": self._session.user or "", "peer": self._accepted.port.peer}
        what = {"group": group.config.name, "key": group.state.key_number}
        logger.info("multicast key handed out", extra=about(**client, **what))
        return [(MULTICAST_PROPERTY, text) for text in group.hand_out()]

    def may_have(self, topic_filters: tuple[str, ...]) -> bool:
        """Whether the access rules let the client receive all that these filters match."""
        return all(map(self._permissions.may_receive_all, topic_filters))

    def send_key(self, topic: str, text: str) -> None:
        """Sends the client the next key of a group."""
        if self._accepted.protocol.connected:
            self._accepted.protocol.publish(topic, text.encode(), qos=0)
            self._accepted.flush()

    def send(self, message: Message) -> None:
        """Sends the client a message that fits no datagram, if it has asked for it."""
        if (sender := self._session.sender) is not None and any(matches(one, message.topic) for one in self._groups):
            sender.send_now(message, Grant(0, False, ()))
