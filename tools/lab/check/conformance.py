"""The tables of the page of conformance: each statement of both standards, and the check or test that shows it.

`python -m tools.lab.check.conformance` writes them anew, behind the page's own text.
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

BEGIN = "<!-- made of the checks and statements by tools/lab/check/conformance.py: begin -->"
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


def renewed(page: str) -> str:
    """Returns the page with its tables made anew."""
    standards = "".join(map(_standard, VERSIONS))
    return page.partition(BEGIN)[0] + BEGIN + "\n" + standards + MOSQUITTO_HEAD + "".join(_mosquitto())


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
    PAGE.write_text(renewed(PAGE.read_text("utf-8")), "utf-8")
