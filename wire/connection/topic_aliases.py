"""Topic aliases (section 3.3.2.3.4): numbers that replace topic names in one direction of one connection."""

from wire.errors import PacketTooLargeError, RemoteProtocolError
from wire.properties import TOPIC_ALIAS
from wire.reasons import PROTOCOL_ERROR, TOPIC_ALIAS_INVALID

OUTGOING_MAX = 32  # topics; without this limit the peer would decide how much memory our side uses


class OutgoingAliases:
    """The aliases that our side has given. The first topics get them, and keep them until the connection ends.

    Args:
        maximum: the peer's Topic Alias Maximum.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = min(maximum, OUTGOING_MAX)
        self._given: dict = {}

    def of_all(self, topics: list) -> list:
        """Returns an alias for each topic: 0 if it will never have one, None if the next `send` gives it one."""
        unknown = 0 if len(self._given) >= self._maximum else None
        return [self._given.get(topic, unknown) for topic in topics]

    def send(self, packet, send) -> None:
        """Passes a PUBLISH to `send`, with the alias of its topic if the topic has one or gets one now.

        The first PUBLISH with an alias carries the topic name too. If the peer's Maximum Packet Size does not allow
        this, the PUBLISH is sent with the name alone. Raises the errors of `send`.
        """
        topic, properties = packet.topic, packet.properties
        alias = self._given.get(topic)
        new = alias is None
        if new and len(self._given) >= self._maximum:
            send(packet)
            return
        packet.properties = dict(properties)
        packet.properties[TOPIC_ALIAS] = len(self._given) + 1 if new else alias
        if not new:
            packet.topic = ""
        try:
            send(packet)
        except PacketTooLargeError:
            packet.topic, packet.properties = topic, properties
            send(packet)
        else:
            if new:
                self._given[topic] = packet.properties[TOPIC_ALIAS]


class IncomingAliases:
    """The aliases that the peer has given to topics.

    Args:
        maximum: our own Topic Alias Maximum.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._topics: dict = {}

    def resolve(self, packet) -> None:
        """Replaces the alias of a received PUBLISH by its topic name.

        Raises RemoteProtocolError: 0x94 for an alias above our maximum [MQTT-3.3.2-9], 0x82 for an alias that the peer
        has given to no topic.
        """
        alias = packet.properties.pop(TOPIC_ALIAS)
        if alias > self._maximum:
            raise RemoteProtocolError(TOPIC_ALIAS_INVALID, f"topic alias {alias}; {self._maximum} is the most")
        if packet.topic:
            self._topics[alias] = packet.topic
        elif alias in self._topics:
            packet.topic = self._topics[alias]
        else:
            raise RemoteProtocolError(PROTOCOL_ERROR, f"topic alias {alias} stands for no topic yet")
