"""The file of access rules, with one rule on each line: ``allow|deny WHO ACTIONS WHAT``.

::

    # The first rule that matches decides; without one the action is denied.
    allow  *        connect            %u-*
    deny   *        publish,subscribe  site/locks/#
    allow  alice    publish,subscribe  site/#
    allow  *        publish            telemetry/%c/#
    allow  site-2   identify           *
    allow  site-2   neighbour          site-2
    allow  -        subscribe          "public/opening hours"
    allow  alice    watch              *

WHO is a user's name, ``*`` for all clients, ``-`` for clients without a user. WHAT is a topic filter. For ``connect``
it is a client identifier, for ``identify`` an origin, and for ``neighbour`` and ``watch`` the name of a gateway; these
may end in ``*``. ``%u`` stands for the user's name, ``%c`` for the client identifier.
"""

import re
import shlex
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gateway.auth.filters import Levels, split
from host.errors import ConfigError
from host.files import read_file
from wire.errors import WireError
from wire.topics import check_topic_filter

CONNECT, IDENTIFY, NEIGHBOUR, PUBLISH, SUBSCRIBE, WATCH = ACTIONS = (
    "connect",
    "identify",
    "neighbour",
    "publish",
    "subscribe",
    "watch",
)
ACTIONS_ON_NAMES = (CONNECT, IDENTIFY, NEIGHBOUR, WATCH)
ALL_CLIENTS, WITHOUT_USER = "*", "-"

_split = lru_cache(maxsize=1024)(split)  # all clients share the levels of a rule without names


@dataclass(slots=True, frozen=True)
class Rule:
    """One rule; ``what`` is a topic filter or a name, with its placeholders."""

    allows: bool
    subject: str
    actions: tuple[str, ...]
    what: str

    def is_for(self, user: str | None) -> bool:
        return self.subject == ALL_CLIENTS or (user is None if self.subject == WITHOUT_USER else self.subject == user)


def load_rules(path: Path) -> tuple[Rule, ...]:
    """Reads a file of access rules. Raises ConfigError with a line of text for each line that is wrong."""
    try:
        return parse_rules(read_file(path).decode(), path)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8") from error


def parse_rules(text: str, path: Path) -> tuple[Rule, ...]:
    """Reads the text of a file of access rules. Raises ConfigError with a line of text for each line that is wrong."""
    lines = text.replace("\r\n", "\n").split("\n")
    rules: list[Rule] = []
    errors: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            rules.append(_decode(line))
        except ValueError as error:
            errors.append(f"{path}:{number}: {error}")
    if errors:
        raise ConfigError("\n".join(errors))
    return tuple(rules)


def fill(what: str, user: str | None, client_id: str) -> Levels | None:
    """Returns a rule's topic filter for one client; None if a name cannot be part of a topic filter.

    A name that has ``+``, ``#`` or ``/``, begins with ``$`` or is empty would change the meaning of the rule.
    """
    names = {"%u": user or "", "%c": client_id}
    if any(sign in what and not _can_stand_in_a_filter(name) for sign, name in names.items()):
        return None
    return _split(re.sub("%[uc]", lambda found: names[found[0]], what))


def fits_name(what: str, user: str | None, name: str) -> bool:
    """Whether a rule's client identifier, origin or gateway matches a name."""
    if "%u" in what and not user:
        return False
    start, rest = what.removesuffix("*"), what.endswith("*")
    start = start.replace("%u", user or "")
    return name.startswith(start) if rest else name == start


def _can_stand_in_a_filter(name: str) -> bool:
    return bool(name) and not name.startswith("$") and not any(sign in name for sign in "+#/")


def _decode(line: str) -> Rule:
    words = shlex.split(line)
    if len(words) != 4 or words[0] not in ("allow", "deny"):
        of_mosquitto = words and words[0] in ("user", "topic", "pattern")
        raise ValueError(
            "expected 'allow WHO ACTIONS WHAT' or 'deny WHO ACTIONS WHAT'"
            + (": docs/how-to/mosquitto.md has what a line of mosquitto's is here" if of_mosquitto else "")
        )
    verb, subject, listed, what = words
    actions = tuple(listed.split(","))
    if unknown := [action for action in actions if action not in ACTIONS]:
        raise ValueError(f"unknown action {unknown[0]!r}, expected some of {', '.join(ACTIONS)} with commas between")
    on_names = [action for action in actions if action in ACTIONS_ON_NAMES]
    if not on_names:
        _check_filter(what)
    elif len(actions) > 1:
        raise ValueError(f"{on_names[0]} has a name where others have a topic filter: expected a line each")
    elif "*" in what[:-1] or "%c" in what:
        raise ValueError(f"{what!r}: a name of {on_names[0]} may have %u in it and * at its end, and no %c")
    return Rule(verb == "allow", subject, actions, what)


def _check_filter(what: str) -> None:
    try:
        check_topic_filter(what)
    except WireError as error:
        raise ValueError(error) from error
    if what.startswith("$share/"):
        raise ValueError(
            f"{what!r}: a rule counts for shared subscriptions too, expected the filter behind $share/NAME"
        )
