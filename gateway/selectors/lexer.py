"""The words of a selector: ``region = 'north' AND reading.temperature > 30``."""

import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

TEXT_MAX = 1_024
"""The most characters of a selector. To read one takes up to 10 µs a character, and other clients wait."""
KEYWORDS = frozenset(["AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"])
INTEGER_MAX = 2**63 - 1  # JMS has integers of 64 bits

_WORDS = re.compile(
    r"""
      (?P<blank>\s+)
    | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<text>'(?:[^']|'')*')
    | (?P<name>(?:[^\W\d][\w$]*|\$|"(?:[^"]|"")+")(?:\.(?:[\w$]+|"(?:[^"]|"")+"))*)
    | (?P<symbol><>|<=|>=|[=<>()+\-*/,])
    """,
    re.VERBOSE,
)
_PART = re.compile(r'"((?:[^"]|"")+)"|[^."]+')


class BadSelector(ValueError):
    """A text is not a selector. The error says what was expected and at which character, counted from 1."""


class Word(NamedTuple):
    """One word. ``kind`` is "number", "text", "name", "quoted name", "keyword", "symbol" or "end".

    ``value`` is a number, a text without its quotes, the parts of a name, or the keyword or symbol itself. ``place`` is
    its first character, counted from 1.
    """

    kind: str
    value: int | float | str | tuple[str, ...]
    place: int

    def __str__(self) -> str:
        return ".".join(self.value) if isinstance(self.value, tuple) else str(self.value)


def words(text: str) -> Iterator[Word]:
    """Yields the words of a selector, at last one of the kind "end". Raises BadSelector."""
    if len(text) > TEXT_MAX:
        raise BadSelector(f"{len(text)} characters, expected {TEXT_MAX} at most")
    at = 0
    while at < len(text):
        found = _WORDS.match(text, at)
        if found is None:
            raise BadSelector(f"character {at + 1}: {_fault(text[at])}")
        if found.lastgroup != "blank":
            yield _word(str(found.lastgroup), found[0], at + 1)
        at = found.end()
    yield Word("end", "the end", at + 1)


def _word(kind: str, text: str, place: int) -> Word:
    if kind == "number":
        return Word(kind, _number(text, place), place)
    if kind == "text":
        return Word(kind, text[1:-1].replace("''", "'"), place)
    if kind == "name" and text.upper() in KEYWORDS:
        return Word("keyword", text.upper(), place)
    if kind == "name":
        parts = tuple((part[1] or part[0]).replace('""', '"') for part in _PART.finditer(text))
        return Word("quoted name" if text[0] == '"' else kind, parts, place)
    return Word(kind, text, place)


def _number(text: str, place: int) -> int | float:
    number = int(text) if text.isdigit() else float(text)
    if number == float("inf") or (isinstance(number, int) and number > INTEGER_MAX):
        raise BadSelector(f"character {place}: the number {text[:40]} is too large")
    return number


def _fault(character: str) -> str:
    if character in "'\"":
        return f"the quote {character} has no second one"
    return f"unexpected {character!r}"


class Words:
    """The words of a selector, one after the other. Raises BadSelector for what is no word.

    Attributes:
        count: how many words the selector has.
    """

    def __init__(self, text: str) -> None:
        self._all = list(words(text))
        self._at = 0
        self.count = len(self._all) - 1

    @property
    def current(self) -> Word:
        """The next word; at the end one of kind "end"."""
        return self._all[self._at]

    def next(self) -> Word:
        """Returns the next word and goes past it."""
        self._at += 1
        return self._all[self._at - 1]

    def take(self, *expected: str) -> str | None:
        """Returns the next word, and goes past it, if it is one of these keywords or symbols."""
        word = self.current
        if word.kind in ("keyword", "symbol") and word.value in expected:
            return str(self.next())
        return None

    def require(self, expected: str) -> None:
        """Goes past this keyword or symbol. Raises BadSelector if another word is next."""
        if not self.take(expected):
            self.fail(expected)

    def fail(self, expected: str, word: Word | None = None) -> NoReturn:
        """Raises BadSelector about a word, the next one by default."""
        word = word or self.current
        raise BadSelector(f"character {word.place}: expected {expected}, not {str(word)[:40]}")
