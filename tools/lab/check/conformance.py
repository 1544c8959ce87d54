"""The page of conformance: every statement of both standards, and what shows that it is kept.

`python -m tools.check.conformance` writes it anew.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.check.report import sentence
from tools.check.suite import VERSIONS, Check, load
from tools.paths import source_root

FOLDER = Path(__file__).parent
PAGE = source_root() / "docs/reference/conformance.md"
STANDARDS = {"3.1.1": "mqtt-3.1.1.toml", "5": "mqtt-5.0.toml"}
MOSQUITTO = "2.0.11"
NAMED = 3  # checks named in one row at most

HEAD = """\
# Conformance

Every normative statement of MQTT 3.1.1 and 5.0, in short, and what shows that the project's broker and clients keep it:

- a check of the suite that [`holdfast check broker`](commands.md#holdfast-check-broker) runs, which sees a broker from
  outside, by its file in `tools/check/chapters` and its name; those of `authentication` need an account to log in with;
- for what concerns clients, and what cannot be brought about from outside, a test, or the reason why there is none.

The tests run the suite against this project's broker, which keeps all of it, and against mosquitto, whose
[faults](#what-mosquitto-does-otherwise) it finds. This page is made by `python -m tools.check.conformance`.

A filter of a SUBSCRIBE or UNSUBSCRIBE that is empty closes the connection, as a malformed packet does. Any other filter
that is ill-formed is refused by itself, with 0x8F or over 3.1.1 0x80 in the SUBACK, and the others are served.

A client identifier has 256 bytes of UTF-8 at most; a longer one is refused, with 0x85 or over 3.1.1 with 2. MQTT lets a
server refuse any of more than 23 [sections 3.1.3.1].

MQTT 3.1 (`MQIsdp`, level 3), the version before OASIS's, is served as mosquitto serves it: as 3.1.1, with these
differences. A client identifier has to be there, and may be longer than 23 characters. No CONNACK says that a session
is present. A SUBACK cannot say no: it grants what was asked for, and what the rules deny does not come. Flags of a
fixed header that 3.1.1 reserves are passed over.

A level with its highest bit set, 0x83 or 0x84, is that of a bridge of mosquitto's with `try_private`. Its subscriptions
have No Local and Retain As Published, as in mosquitto.
"""
MOSQUITTO_HEAD = f"""
## What mosquitto does otherwise

Debian 12's mosquitto {MOSQUITTO}, with an empty configuration, breaks these checks and no others.

| version | check | what it does |
|---|---|---|
"""


@dataclass(frozen=True)
class Statement:
    """A normative statement: its tag ("MQTT-3.1.0-1"), what it says, and who else shows it, or why nobody can."""

    tag: str
    text: str
    elsewhere: str = ""


def statements(version: str) -> list[Statement]:
    """All statements of a version, in the standard's order."""
    table = tomllib.loads((FOLDER / STANDARDS[version]).read_text("utf-8"))
    return [Statement(f"MQTT-{number}", *words) for number, words in table.items()]


def mosquitto_faults() -> dict[tuple[str, str], str]:
    """{(version, name of the check): what mosquitto does}."""
    table = tomllib.loads((FOLDER / f"mosquitto-{MOSQUITTO}.toml").read_text("utf-8"))
    return {(version, name): text for version, faults in table.items() for name, text in faults.items()}


def page() -> str:
    """The page's text."""
    return HEAD + "".join(_standard(version) for version in VERSIONS) + MOSQUITTO_HEAD + "".join(_mosquitto())


def shown_by(version: str) -> dict[str, list[str]]:
    """{tag: the checks that show it, as file.name}."""
    found: dict[str, list[str]] = {}
    for check in load():
        if check.version == version:
            for tag in check.clauses:
                named = found.setdefault(tag, [])
                if (name := _place(check)) not in named:
                    named.append(name)
    return found


def _standard(version: str) -> str:
    checks = shown_by(version)
    rows = [f"| {one.tag} | {one.text} | {_proof(one, checks.get(one.tag, []))} |\n" for one in statements(version)]
    title = "5.0" if version == "5" else version
    return f"\n## MQTT {title}\n\n| statement | says | shown by |\n|---|---|---|\n{''.join(rows)}"


def _proof(statement: Statement, checks: list[str]) -> str:
    shown = [f"`{name}`" for name in checks[:NAMED]]
    more = [f"{len(checks) - NAMED} more"] if len(checks) > NAMED else []
    elsewhere = [re.sub(r"(tests/[\w/.]+(::\w+)?)", r"`\1`", statement.elsewhere)] if statement.elsewhere else []
    return ", ".join((*shown, *more, *elsewhere))


def _place(check: Check) -> str:
    return f"{check.function.__module__.rpartition('.')[2]}.{check.function.__name__}"


def _mosquitto() -> Iterator[str]:
    for (version, name), text in mosquitto_faults().items():
        yield f"| {version} | {sentence(name)} | {text} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
