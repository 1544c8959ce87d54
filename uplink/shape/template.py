"""Topic names made of others: ``plant/{gateway}/{2-}``."""

import re
from typing import NamedTuple

from wire.errors import WireError
from wire.topics import check_topic_name

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
LEVELS = re.compile(r"([1-9][0-9]{0,4})(-?)")
EXPECTED = "expected {topic}, {gateway}, {route}, {2} for a level, or {2-} for the levels from there on"


class Levels(NamedTuple):
    """A placeholder for levels of the stored name: from ``first`` on, counted from 0, and only this one or all."""

    first: int
    has_rest: bool

    def of(self, levels: list[str]) -> str:
        """Returns the text that stands for it. Raises ValueError if the name has too few levels."""
        if self.first >= len(levels):
            raise ValueError(f"{'/'.join(levels)[:100]!r} has no level {self.first + 1}")
        return "/".join(levels[self.first :]) if self.has_rest else levels[self.first]


class Template(NamedTuple):
    """A topic name with placeholders: its parts in their order."""

    parts: tuple[str | Levels, ...]

    def fill(self, gateway: str, route: str) -> "Template":
        """Returns the template of one route, in which only levels of the stored name are open."""
        names = {"{gateway}": gateway, "{route}": route}
        return Template(tuple(names.get(part, part) if isinstance(part, str) else part for part in self.parts))

    def name(self, topic: str) -> str:
        """Returns the new name of a topic. Raises ValueError if there is none, or MQTT does not allow it."""
        levels = topic.split("/")
        name = "".join(part if isinstance(part, str) else part.of(levels) for part in self.parts)
        try:
            check_topic_name(name)
        except WireError as error:
            raise ValueError(str(error)) from error
        return name


def parse_template(text: str) -> Template:
    """Returns the template that a text says. Raises ValueError."""
    parts: list[str | Levels] = []
    for index, part in enumerate(PLACEHOLDER.split(text)):
        if index % 2 == 0:
            if "{" in part or "}" in part:
                raise ValueError(f"{text!r} has a brace without the other one, {EXPECTED}")
            if "+" in part or "#" in part or "\0" in part:
                raise ValueError(f"{text!r}, expected a topic name, which has no + and no #")
            parts.append(part)
        elif part in ("gateway", "route"):
            parts.append(f"{{{part}}}")
        elif part == "topic":
            parts.append(Levels(0, True))
        elif levels := LEVELS.fullmatch(part):
            parts.append(Levels(int(levels[1]) - 1, bool(levels[2])))
        else:
            raise ValueError(f"{{{part}}} in {text!r}, {EXPECTED}")
    return Template(tuple(parts))
