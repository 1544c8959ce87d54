"""What a message is called on the line: its topic name, its response topic, and the user property with its stream."""

from collections.abc import Iterable
from copy import copy
from typing import Protocol

from gateway.message import Message
from gateway.streams.names import DEFAULT_NAME, PLAIN, PREFIX, PROPERTY, Place, place_of, prefix_of, stream_named
from wire.codec.packets import Publish
from wire.properties import RESPONSE_TOPIC, USER_PROPERTY
from wire.reserved import STREAM_PROPERTY, STREAM_TOPICS
from wire.topics import matches


class NamesStreams(Protocol):
    """A session; ``namings`` counts how many of its subscriptions name the stream in each way."""

    @property
    def namings(self) -> dict[str, int]: ...

    def namings_for(self, topic: str) -> Iterable[tuple[str, str]]:
        """Returns topic filters that may match a topic name, each with how it names its stream."""


def enter(packet: Publish, place: Place, implied: str) -> Publish:
    """Returns a client's PUBLISH as it is in a stream: with the topic there, and without the property that names it.

    A response topic becomes one as a client of the stream understands it. Raises BadStream: it cannot be read.
    """
    inside = copy(packet)
    inside.topic, inside.properties = place.topic, dict(packet.properties)
    named = stream_named(packet.properties)
    if response := packet.properties.get(RESPONSE_TOPIC):
        there = place_of(response, None if response.startswith(STREAM_TOPICS) else named, implied)
        is_inside = there.stream == place.stream
        inside.properties[RESPONSE_TOPIC] = there.topic if is_inside else prefix_of(there.stream) + there.topic
    if named is not None:
        others = [pair for pair in packet.properties[USER_PROPERTY] if pair[0] != STREAM_PROPERTY]
        inside.properties[USER_PROPERTY] = others
        if not others:
            del inside.properties[USER_PROPERTY]
    return inside


def names_stream(packet: Publish) -> bool:
    """Whether a PUBLISH, or its response topic, names a stream."""
    properties = packet.properties
    if packet.topic.startswith(STREAM_TOPICS):
        return True
    if not properties:
        return False
    is_in_response = properties.get(RESPONSE_TOPIC, "").startswith(STREAM_TOPICS)
    return is_in_response or any(name == STREAM_PROPERTY for name, _ in properties.get(USER_PROPERTY, ()))


class Naming:
    """Names the messages of a stream for one client, as it has named the stream in its subscriptions.

    Args:
        stream: the stream, "" for the default one.
        session: the client's session, whose subscriptions name it.
    """

    __slots__ = ("_session", "_stream")

    def __init__(self, stream: str, session: NamesStreams) -> None:
        self._stream = stream
        self._session = session

    @property
    def is_plain(self) -> bool:
        """Whether all messages have their plain names."""
        counts = self._session.namings
        return not (counts.get(PREFIX) or counts.get(PROPERTY))

    def of(self, message: Message) -> Message:
        """Returns a message as the client gets it: by the most telling of the ways of its matching subscriptions."""
        naming = self._naming(message.topic)
        if naming == PLAIN:
            return message
        named = copy(message)
        named.halves, named.properties = None, dict(message.properties)
        if naming == PROPERTY:
            pairs = [*message.properties.get(USER_PROPERTY, ()), (STREAM_PROPERTY, self._stream or DEFAULT_NAME)]
            named.properties[USER_PROPERTY] = pairs
            return named
        named.topic = prefix_of(self._stream) + message.topic
        if response := message.properties.get(RESPONSE_TOPIC):
            is_elsewhere = response.startswith(STREAM_TOPICS)
            named.properties[RESPONSE_TOPIC] = response if is_elsewhere else prefix_of(self._stream) + response
        return named

    def _naming(self, topic: str) -> str:
        if self.is_plain:
            return PLAIN
        used = [naming for naming, count in self._session.namings.items() if count]
        if len(used) > 1:
            used = [naming for topic_filter, naming in self._session.namings_for(topic) if matches(topic_filter, topic)]
        return max(used, key=(PLAIN, PROPERTY, PREFIX).index, default=PLAIN)
