"""Topic aliases (section 3.3.2.3.4): a number in place of a topic name, for one direction of one connection."""

from wire.errors import PacketTooLargeError, RemoteProtocolError
from wire.properties import TOPIC_ALIAS
from wire.reasons import PROTOCOL_ERROR, TOPIC_ALIAS_INVALID

OUTGOING_MAX = 32  # topics; what we would otherwise keep in memory is the peer's to say


class OutgoingAliases:
    """The aliases we have given to topics; the first topics get them, for the connection's life.

    Args:
        maximum: the peer's Topic Alias Maximum.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = min(maximum, OUTGOING_MAX)
        self._given: dict = {}

    def send(self, packet, send) -> None:
        """Sends a PUBLISH with an alias where there is one for its topic; `send` takes the packet.

        Raises what `send` does; the packet with its topic written out may be smaller than with topic and alias, and
        is tried as well.
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
    """The aliases that the peer has given.

    Args:
        maximum: our own Topic Alias Maximum.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._topics: dict = {}

    def resolve(self, packet) -> None:
        """Puts the topic in place of the alias of a PUBLISH.

        Raises RemoteProtocolError: 0x94 beyond our maximum [MQTT-3.3.2-9], 0x82 for an alias without a topic.
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
