"""Words that make a sentence hard to read, and names that were replaced: no file holds either.

A sentence here has a subject, a verb and an object, and names the thing: the session, the commit, the client.
`docs/reference/glossary.md` has the words to use, one meaning each.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.repository import name, read, texts

NOT_OURS = ("LICENSE",)

# Each pattern, and what to write instead.
WORDS = {
    r"\b(?i:somebody|someone|nobody|no one|whoever|everybody|everyone|whom)\b": "name the client or the session",
    r"\b[Ww]ho\b": "name the thing: 'the client that'; 'who' only behind a person, as in 'the user who'",
    r"\b(?i:those whose|that is none|what is none|which is none)\b": "say what it is, or that there is none",
    r"\b(?:[Hh]e|[Hh]is|[Hh]im)\b": "name the person, or 'they'",
    r"\b(?i:spoilt)\b": "corrupt",
    r"\b[Tt]hose\s+(?:(?:#|--|>)\s+)?that\b": "say the noun again: 'messages that'",
    r"\b[Ss]o\s+many\b(?!(?:\s+[\w-]+){1,3}\s+that\b)": "name the number: '`count` messages'; fine is 'so many … that'",
    r'"""(?:That|Those|Of|So many)\b(?! (?:is|are)\b)': "begin the docstring with what it is or does",
    r"(?<=_)(?:somebody|someone|nobody|whoever|everybody|whom|spoilt|who(?![a-z]))": "name the thing",
    r"(?:(?:somebody|someone|nobody|whoever|everybody|whom|spoilt)|\bwho)(?=_)": "name the thing",
}
RENAMED = {
    "Turn": "AckBatch",
    "Tail": "RowCache",
    "Stretches": "RangeSet",
    "Entrance": "ConnectionLimits",
    "Door": "Acceptor",
    "Noted": "DurableIds",
    "Unstored": "Qos0Queue",
    "Unreleased": "DroppedInFlight",
    "SessionMark": "SessionProbe",
    "Failures": "LoginThrottle",
    "let_go": "unpin",
    "later": "defer",
    "LinkNumbers": "RouteNumbers",
    "Share": "HandedOn",
    "Windows": "Schedule",
}
RENAMED_IN_THE_GATEWAY = {"Run": "PublishBatch", "Group": "LogRow", "hold": "pin"}

PERSONS = "user|reader|engineer|attacker|operator|administrator|person|people|stranger|author|contributor"
_FINE = re.compile(rf"`[^`\n]*`|\]\([^)\s]*\)|\b(?:{PERSONS})s?\s+(?:#\s+)?who\b")  # code, a link, a person
_DEFINED = re.compile(r"^\s*(?:class|(?:async )?def) _*(\w+)", re.MULTILINE)
_MENTIONED = re.compile(r"`(\w+)`")


def faults(text: str, place: str = "") -> Iterator[str]:
    """What is to be written otherwise in a file's text, with its line."""

    def at(position: int) -> str:
        return f"{place}:{text.count(chr(10), 0, position) + 1}"

    prose = _FINE.sub(lambda fine: re.sub(r"[^\n]", "`", fine[0]), text)
    for pattern, advice in WORDS.items():
        yield from (
            f"{at(found.start())}: '{' '.join(found[0].split())}': {advice}" for found in re.finditer(pattern, prose)
        )
    renamed = {**RENAMED, **RENAMED_IN_THE_GATEWAY} if place.startswith(("gateway/", "uplink/", "docs/")) else RENAMED
    for found in (_MENTIONED if place.endswith(".md") else _DEFINED).finditer(text):
        if found[1] in renamed:
            yield f"{at(found.start(1))}: '{found[1]}' is now {renamed[found[1]]}"


def own_files() -> list[Path]:
    """Every file but the licence, which is not our text, and this one, which holds the words themselves."""
    me = name(Path(__file__).resolve())
    return [path for path in texts() if name(path) not in (me, *NOT_OURS)]


def test_texts_are_in_plain_words_and_names_are_the_new_ones() -> None:
    assert [fault for path in own_files() for fault in faults(read(path), name(path))] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Returns who may log in.", [":1: 'who'"]),
        ("The user who made it, by `whoever`.", []),
        ("Nobody and\nwhoever", [":1: 'Nobody'", ":2: 'whoever'"]),
        ("# The users\n    # who log in.", []),
        ("a spoilt row", [":1: 'spoilt'"]),
        ("hash_of_nobody", [":1: 'nobody'"]),
        ("what_is_denied_to_who_is_away", [":1: 'who'"]),
        ("a_session_whose_rows", []),
        ("messages, and those that wait", [":1: 'those that'"]),
        ("# the last of those\n    # that wait", [":1: 'those # that'"]),
        ("Returns so many messages.", [":1: 'so many'"]),
        ("so many messages that no other client gets a turn", []),
        ('"""Of the gateway\'s name."""', [':1: \'"""Of\'']),
        ('"""That of its last delivery."""', [':1: \'"""That\'']),
        ('"""Those of all its deliveries."""', [':1: \'"""Those\'']),
        ('"""Offers the time. Of two, the first."""', []),
        ("class Turn:", [":1: 'Turn' is now AckBatch"]),
        ("def _let_go():", [":1: 'let_go' is now unpin"]),
    ],
)
def test_the_words_are_found(text: str, expected: list[str]) -> None:
    assert [fault.partition("':")[0] + "'" * ("':" in fault) for fault in faults(text)] == expected
