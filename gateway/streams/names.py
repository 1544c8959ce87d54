"""The names of streams, and the topics in them.

A stream ``plant`` has the topics ``$SYS/STREAM/plant/TOPIC``: so they stand in access rules, and so clients may write
them. In the stream's own store a message has the rest, ``TOPIC``, alone. A client names a stream in one of three ways,
and gets messages under names of the same kind::

    PREFIX    topic $SYS/STREAM/plant/TOPIC
    PROPERTY  topic TOPIC, with the user property hf-stream = plant
    PLAIN     topic TOPIC: the stream that the client's user or listener implies, or the default stream

The default stream's topics stand in access rules without a prefix. A client that another stream is implied for can
still name it, as ``default``.
"""

from collections.abc import Container
from typing import NamedTuple

from wire.properties import USER_PROPERTY
from wire.reserved import RESERVED_TOPICS, STREAM_PROPERTY, STREAM_TOPICS
from wire.topics import parse_shared

DEFAULT_NAME = "default"
"""The name of the default stream, where a name has to stand. Inside the gateway that is ""."""
RESERVED_NAMES = (DEFAULT_NAME, "any")
NAME_BYTES_MAX = 128
PLAIN, PROPERTY, PREFIX = "", "property", "prefix"
"""How a client has named a stream."""


class BadStream(ValueError):
    """A stream cannot be named so, or is not served here. The text says why."""


class Place(NamedTuple):
    """A topic name or topic filter in a stream, "" for the default one, and how the client has named the stream."""

    stream: str
    topic: str
    naming: str


def check_stream_name(name: str) -> None:
    """Raises BadStream unless a stream may have a name: one level of a topic, and none that is reserved."""
    if not name or len(name.encode()) > NAME_BYTES_MAX:
        raise BadStream(f"expected a name of 1 to {NAME_BYTES_MAX} bytes")
    if name in RESERVED_NAMES:
        raise BadStream(f"{name!r} is reserved")
    if name[0] in "$." or any(character in "/+#" or not character.isprintable() for character in name):
        text = "expected one level of a topic, without wildcards and without $ or . at its beginning"
        raise BadStream(f"{name!r}: {text}")


def is_stream_name(name: str) -> bool:
    """Whether a stream may have a name."""
    try:
        check_stream_name(name)
    except BadStream:
        return False
    return True


def check_served(stream: str, served: Container[str]) -> None:
    """Raises BadStream unless a stream is served here."""
    if stream not in served:
        raise BadStream(f"no stream {stream!r} is served here")


def stream_named(properties: dict) -> str | None:
    """Returns the name that the user property of a packet gives, None without one. Raises BadStream: it has several."""
    names = [value for name, value in properties.get(USER_PROPERTY, ()) if name == STREAM_PROPERTY]
    if len(set(names)) > 1:
        raise BadStream(f"expected one user property {STREAM_PROPERTY}, not {len(names)}")
    return names[0] if names else None


def place_of(topic: str, named: str | None, implied: str) -> Place:
    """Returns where a topic name or topic filter of a client is; a shared subscription keeps its share name.

    Args:
        topic: as the client has written it.
        named: the stream that the packet's user property names, None without one.
        implied: the stream of topics that name none.

    Raises:
        BadStream: the name is none, or there are two.
    """
    share_name, bare = parse_shared(topic)
    if bare.startswith(STREAM_TOPICS):
        name, _, rest = bare.removeprefix(STREAM_TOPICS).partition("/")
        if named not in (None, name):
            raise BadStream(f"{topic!r} is in stream {name!r}, and {STREAM_PROPERTY} names {named!r}")
        if not rest:
            raise BadStream(f"{topic!r}: expected {STREAM_TOPICS}NAME/TOPIC")
        naming = PREFIX
    elif named is not None:
        name, rest, naming = named, bare, PROPERTY
    else:
        return Place(implied, topic, PLAIN)
    if name != DEFAULT_NAME:
        check_stream_name(name)
    if rest.startswith((STREAM_TOPICS, RESERVED_TOPICS)):
        raise BadStream(f"{topic!r}: {rest!r} cannot be in a stream")
    if rest.partition("/")[0] == "$share":
        raise BadStream(f"{topic!r}: expected $share/NAME/ in front of the stream's name, and once")
    rest = rest if share_name is None else f"$share/{share_name}/{rest}"
    return Place("" if name == DEFAULT_NAME else name, rest, naming)


def prefix_of(stream: str) -> str:
    """Returns what stands before the topics of a stream where they are written with their prefix."""
    return f"{STREAM_TOPICS}{stream or DEFAULT_NAME}/"


def in_rules(stream: str, topic: str) -> str:
    """Returns a topic of a stream as access rules have it."""
    return f"{prefix_of(stream)}{topic}" if stream else topic


def visiting_id(client_id: str, home: str) -> str:
    """Returns the name of the session that a client has in another stream than the one that is implied for it.

    Clients of several streams may have the same client identifier, and no client identifier has a U+0000
    [MQTT-1.5.4-2].
    """
    return f"{client_id}\0@{home}"


def client_of(session: str) -> str:
    """Returns the client identifier of a session's client, which may be a visiting one."""
    return session.partition("\0@")[0]


def is_visiting(session: str) -> bool:
    """Whether a session's name shows that it is a visiting one."""
    return "\0@" in session
