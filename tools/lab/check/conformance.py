"""The page of conformance: every normative statement of both standards, and the check or test that shows it.

`python -m tools.lab.check.conformance` writes it anew.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.cli.paths import source_root
from tools.lab.check.report import sentence
from tools.lab.check.suite import VERSIONS, Check, load

FOLDER = Path(__file__).parent
PAGE = source_root() / "docs/reference/conformance.md"
STANDARDS = {"3.1.1": "mqtt-3.1.1.toml", "5": "mqtt-5.0.toml"}
MOSQUITTO = "2.0.11"
NAMED = 3  # checks named in one row at most

HEAD = """\
# Conformance

This page lists every normative statement of MQTT 3.1.1 and 5.0 in a few words, and the proof that a gateway and the
clients in `wire` keep it. The proof of a statement is one of these:

- A check of the suite that [`holdfast check broker`](commands.md#holdfast-check-broker) runs. It observes a broker as
  a client does. The table gives its file in `tools/lab/check/chapters` and its name. The checks of `authentication`
  need an account.
- For statements about clients, and for those that a client cannot observe: a test, or the reason why there is no
  test.

The tests run the suite against a gateway, which keeps every statement, and against mosquitto, where it finds
[faults](#what-mosquitto-does-otherwise). `python -m tools.lab.check.conformance` writes this page.

Where the standards leave a choice, or say nothing, a gateway behaves like this:

- **Invalid filters.** An empty filter in a SUBSCRIBE or UNSUBSCRIBE is a malformed packet and closes the connection.
  Any other invalid filter is refused in the SUBACK (0x8F; over 3.1.1: 0x80), and the other filters of the packet are
  granted.
- **Client identifiers** have at most 256 bytes of UTF-8. A longer one is refused (0x85; over 3.1.1: 2). MQTT allows a
  server to refuse identifiers of more than 23 characters [sections 3.1.3.1].
- **MQTT 3.1** (`MQIsdp`, level 3), the version before the OASIS standard, works as in mosquitto: like 3.1.1, with
  these differences. The client identifier is required, and may be longer than 23 characters. A CONNACK never says
  that a session is present. A SUBACK cannot refuse, so it grants every filter, and the client does not get the
  messages that the rules deny. Flags of a fixed header that 3.1.1 reserves are ignored.
- **Bridges of mosquitto.** A protocol level with its highest bit set, 0x83 or 0x84, comes from a mosquitto bridge
  with `try_private`. Its subscriptions have No Local and Retain As Published, as in mosquitto.
"""
MOSQUITTO_HEAD = f"""
## What mosquitto does otherwise

Debian 12's mosquitto {MOSQUITTO} with an empty configuration fails these checks, and no others.

| version | check | what it does |
|---|---|---|
"""


@dataclass(frozen=True)
class Statement:
    """A normative statement: its tag ("MQTT-3.1.0-1"), what it says, and the test that shows it, or why no test can."""

    tag: str
    text: str
    elsewhere: str = ""


def statements(version: str) -> list[Statement]:
    """All statements of a version, in the standard's order."""
    table = tomllib.loads((FOLDER / STANDARDS[version]).read_text("utf-8"))
    return [Statement(f"MQTT-{number}", *words) for number, words in table.items()]


def mosquitto_faults() -> dict[tuple[str, str], str]:
    """Returns {(version, name of the check): text about mosquitto's behaviour}."""
    table = tomllib.loads((FOLDER / f"mosquitto-{MOSQUITTO}.toml").read_text("utf-8"))
    return {(version, name): text for version, faults in table.items() for name, text in faults.items()}


def page() -> str:
    """Returns the text of the page."""
    return HEAD + "".join(_standard(version) for version in VERSIONS) + MOSQUITTO_HEAD + "".join(_mosquitto())


def shown_by(version: str) -> dict[str, list[str]]:
    """Returns {tag: the checks that show it, as file.name}."""
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
