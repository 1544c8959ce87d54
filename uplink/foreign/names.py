"""Names: an MQTT topic name as a name of another system, and back.

The other systems separate levels by a dot, which may be a part of a level in MQTT. So the two signs are swapped, one to
one: ``a.b/c`` is ``a/b.c`` there, and comes back as it was.
"""

import re
from dataclasses import dataclass

from gateway.routes import remember
from wire.errors import WireError
from wire.topics import check_topic_name

BLANK = re.compile(r"[\s\x00]")
KNOWN_MOST = 4096
SWAP = str.maketrans("/.", "./")


class NoName(Exception):
    """A topic name has no name in the other system, or a name there is no topic name; the text says why."""


@dataclass(frozen=True)
class Dialect:
    """How another system writes names and patterns.

    Attributes:
        one: the wildcard for one level.
        rest: the wildcard for all levels that follow.
        rest_needs_one: whether ``rest`` matches one level at least, where MQTT's ``#`` matches none too.
        reserved: first levels that belong to the system itself, where no project is before them.
    """

    one: str
    rest: str
    rest_needs_one: bool
    reserved: re.Pattern[str]


NATS = Dialect("*", ">", True, re.compile(r"\$|_INBOX(_|$)"))
"""Subjects [docs.nats.io, "Subject-Based Messaging"]."""


AMQP = Dialect("*", "#", False, re.compile(r"(?!)"))
"""Routing keys of a topic exchange [AMQP 0-9-1, section 3.1.3.3]."""


class Names:
    """Translates names for one route.

    Args:
        dialect: the other system's.
        project: what its names begin with, "" for nothing.
    """

    def __init__(self, dialect: Dialect, project: str = "") -> None:
        self.dialect = dialect
        self._project = project
        self._start = f"{project}." if project else ""
        self._signs = {dialect.one, dialect.rest}
        self._known: dict[str, str] = {}  # names by topic name

    def name_of(self, topic: str) -> str:
        """Returns the name of a topic name there. Raises NoName."""
        if (known := self._known.get(topic)) is not None:
            return known
        name = self._translate(topic)
        remember(self._known, topic, name, KNOWN_MOST)
        return name

    def _translate(self, topic: str) -> str:
        levels = topic.split("/")
        if "" in levels:
            raise NoName(f"topic name {topic!r} has an empty level, and a name there has none")
        if BLANK.search(topic):
            raise NoName(f"topic name {topic!r} has a blank, and a name there has none")
        if any(sign in topic for sign in self._signs):
            raise NoName(f"topic name {topic!r} has a sign that is a wildcard there")
        name = topic.translate(SWAP)
        if not self._project and self.dialect.reserved.match(levels[0].translate(SWAP)):
            raise NoName(f"topic name {topic!r} is reserved there [project]")
        return self._start + name

    def is_reserved(self, name: str) -> bool:
        """Whether a name is one of the other system's own."""
        return not self._project and bool(self.dialect.reserved.match(name.partition(".")[0]))

    def topic_of(self, name: str) -> str:
        """Returns the topic name of a name there. Raises NoName."""
        if not name.startswith(self._start):
            raise NoName(f"name {name!r} does not begin with the project {self._project!r}")
        topic = name[len(self._start) :].translate(SWAP)
        try:
            check_topic_name(topic)
        except WireError as error:
            raise NoName(f"name {name!r} is no topic name: {error}") from None
        return topic

    def patterns_of(self, topic_filter: str) -> list[str]:
        """Returns the patterns that together match the names of what a topic filter matches. Raises NoName.

        Where ``rest`` needs a level, ``a/#`` takes two patterns: one for ``a``, and one for what is below it.
        """
        *levels, last = topic_filter.split("/")
        begin = [self._level(level, topic_filter) for level in levels]
        if last != "#":
            return [self._join([*begin, self._level(last, topic_filter)])]
        below = self._join([*begin, self.dialect.rest])
        return [self._join(begin), below] if begin and self.dialect.rest_needs_one else [below]

    def _level(self, level: str, topic_filter: str) -> str:
        if level == "+":
            return self.dialect.one
        if not level or BLANK.search(level) or any(sign in level for sign in self._signs):
            raise NoName(f"topic filter {topic_filter!r} has no pattern there: level {level!r}")
        return level.translate(SWAP)

    def _join(self, levels: list[str]) -> str:
        return self._start + ".".join(levels)
