"""The page of conformance: every normative statement of both standards, and the check or test that shows it.

`python -m tools.lab.check.conformance` writes it anew.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.cli.paths import source_root
from tools.lab.check.chapters import load
from tools.lab.check.report import sentence
from tools.lab.check.suite import VERSIONS, Check

FOLDER = Path(__file__).parent
PAGE = source_root() / "docs/reference/conformance.md"
STANDARDS = {"3.1.1": "mqtt-3.1.1.toml", "5": "mqtt-5.0.toml"}
MOSQUITTO = "2.0.11"
NAMED = 3  # checks named in one row at most

HEAD = """\
# Conformance

This page lists every normative statement of MQTT 3.1.1 and 5.0 in a few words, and the proof that a gateway and the
clients in `wire` keep it. The proof of a statement is one of these:

- A check of the suite that [`holdfast check broker`](commands/check.md#holdfast-check-broker) runs. It observes a
  broker as a client does. The table gives its file in `tools/lab/check/chapters` and its name. The checks of
  `authentication` need an account.
- For statements about clients, and for statements that a client cannot observe: a test, or the reason why there is no
  test.

The tests run the suite against a gateway, which keeps every statement, and against mosquitto, where it finds
[faults](#what-mosquitto-does-otherwise). `python -m tools.lab.check.conformance` writes this page.

Where the standards leave a choice, or say nothing, a gateway behaves like this:

- **Invalid filters.** An empty filter in a SUBSCRIBE or UNSUBSCRIBE is a malformed packet and closes the connection.
  Any other invalid filter is refused in the SUBACK (0x8F; over 3.1.1: 0x80), and the other filters of the packet are
  granted.
- **Client identifiers** have at most 256 bytes of UTF-8. A longer one is refused (0x85; over 3.1.1: 2). MQTT allows a
  server to refuse identifiers of more than 23 characters [sections 3.1.3.1].
- **Faults.** What cannot be read is a malformed packet (0x81): QoS 3, a string that is not UTF-8 or holds U+0000, an
  empty filter, reserved flags. What can be read and may not come is a protocol error (0x82): packet identifier 0, a
  second CONNECT, a packet that only a server sends, a topic name of no characters without an alias. Each closes the
  connection. A CONNECT with a fault gets its code in a CONNACK over 5.0; over 3.1.1 and 3.1 it gets none [3.1.1
  MQTT-3.1.4-1].
- **Control characters** other than U+0000, and Unicode's non-characters, are taken as they are in every string
  [section 1.5.4 lets a server close the connection].
- **Levels.** Topic names and filters have as many levels as fit 65,535 bytes.
- **Unknown packet identifiers.** A PUBREL of one is answered with PUBCOMP, and a PUBREC with PUBREL, both with 0x92
  over 5.0 [section 4.3.3]. A PUBACK or PUBCOMP of one is ignored.
- **No matching subscribers.** A message that no subscription and no route takes is acknowledged with 0x10 over 5.0.
  It is stored all the same.
- **QoS 2** goes on to subscribers when its PUBLISH is stored, and not at its PUBREL: the method that section 4.3.3
  shows first.
- **User properties.** A message with more than 1,000 of them is refused (0x97), and so is a CONNECT.
- **Response topics.** An empty one is taken, and goes on with its message. One with a wildcard is a protocol error
  [MQTT-3.3.2-14].
- **A PUBLISH to `$share/…`** is a message like any other. Only filters give these names a meaning [section 4.8.2], so
  no subscription can take it; a route with the filter `#` does not either, as the name begins with `$`
  [MQTT-4.7.2-1].
- **Overlapping subscriptions** bring a message once, with the highest QoS of them [MQTT-3.3.4-2]. Subscriptions with
  different Subscription Identifiers bring a copy each, at the QoS of the subscription [MQTT-3.3.4-5], as in
  mosquitto. The other choice, one PUBLISH with several identifiers [MQTT-3.3.4-4], is one that Node-RED cannot read:
  MQTT.js gives it an array where it expects a number, and so no input gets the message. A message with more than eight
  identifiers comes once, with all of them, because each copy costs as much as the message.
- **What the access rules deny** is refused over 5.0 (0x87). MQTT 3.1.1 cannot refuse a message [3.1.1 MQTT-3.3.5-2]:
  there it is acknowledged and not published, and a [range](store.md) `rejected` says so. A client that was
  disconnected instead would send it again over each connection, and never what is behind it. A will that the rules
  deny is refused with its CONNECT over 5.0; over 3.1.1 the client is served, and its will is not published and leaves
  a range.
- **A message that comes again behind its PUBREL.** paho 2.2 publishes a QoS 2 message again with DUP 0 if its
  connection ended between PUBREL and PUBCOMP and its next attempt to connect failed. By the standard that is a new
  message, as the PUBREL has freed the packet identifier [MQTT-4.3.3-12]. The gateway takes it for the same one where
  all of this holds: it is in the next connection of a session that was resumed; packet identifier, topic and payload
  are the same; it has no RETAIN and no message identity, and comes within five minutes; no new message came before it
  over this connection; its PUBREL came ten seconds or less before the
  former connection ended, which ended without DISCONNECT; the client has answered nothing that the gateway sent
  behind the PUBCOMP, no PUBREC by a PUBREL and no PUBLISH by a PUBACK or PUBREC; and it has not used an identifier
  again shortly before, as one does that begins at 1 for each message. So a client loses a new message only if it
  repeats topic, payload and packet identifier of its last one, first of all after a connection that broke at that
  moment. A session with Clean Session begins anew, and what its client publishes again is new.
- **Packet identifiers that were not released.** A PUBLISH of QoS 2 under such an identifier repeats the message that
  has it [MQTT-4.3.3-10]. With another topic or payload it is a new message, as in mosquitto: a client that has
  started anew begins again at identifier 1. The content is known over a restart of the gateway too,
  but not of a client that has used an identifier again within ten seconds: there the identifier alone decides.
- **MQTT 3.1** (`MQIsdp`, level 3), the version before the OASIS standard, works as in mosquitto: like 3.1.1, with
  these differences. The client identifier is required, and may be longer than 23 characters. A CONNACK never says
  that a session is present. A SUBACK cannot refuse, so it grants every filter, and the client does not get the
  messages that the rules deny. Flags of a fixed header that 3.1.1 reserves are ignored, and so is the lowest connect
  flag.
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
