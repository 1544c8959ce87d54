"""Which stream a client's topics are in that name none."""

from collections.abc import Container, Mapping

from gateway.streams.names import DEFAULT_NAME, check_served, stream_named
from wire.codec.packets import Connect


class StreamChoice:
    """Chooses the stream that is implied for a client: by its CONNECT, by its user or by its listener, in this order.

    Args:
        served: the streams of this gateway, "" for the default one.
        users: the streams of users that have one.
    """

    def __init__(self, served: Container[str] = ("",), users: Mapping[str, str] | None = None) -> None:
        self._served = served
        self._users = users or {}

    def implied(self, packet: Connect, user: str | None, listener: str = "") -> str:
        """Returns the stream of a client that logs in, as this user and over a listener with this stream.

        Raises BadStream: the CONNECT names one that is not served here.
        """
        named = stream_named(packet.properties)
        if named is None:
            return self._users.get(user or "", listener)
        stream = "" if named == DEFAULT_NAME else named
        self.check(stream)
        return stream

    def check(self, stream: str) -> None:
        """Raises BadStream unless a stream is served here."""
        check_served(stream, self._served)
