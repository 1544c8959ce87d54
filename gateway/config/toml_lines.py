"""Finds the line of each key in a TOML file, which the standard library's parser does not tell."""

import re

Path = tuple[str | int, ...]

BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
KEY = re.compile(r"""[ \t]*(?:"((?:[^"\\\n]|\\.)*)"|'([^'\n]*)'|([A-Za-z0-9_-]+))[ \t]*""")
STRING = re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}' r"|'''.*?'{3,5}" r'|"(?:[^"\\\n]|\\.)*"' r"|'[^'\n]*'", re.DOTALL)
BARE = re.compile(r"[^,\]}#\n]*")


def find_lines(text: str) -> dict[Path, int]:
    """Returns the line of each key, table and item of a valid TOML file, counted from 1, by its path."""
    return _Scanner(text).scan()


def line_of(lines: dict[Path, int], path: Path) -> int:
    """Returns the line of a path, or of the nearest table around it if the path is missing."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


class _Scanner:
    """Reads a text that is valid TOML, without checks."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines: dict[Path, int] = {}
        self._tables: dict[Path, int] = {}  # the number of tables in each array of tables so far

    def scan(self) -> dict[Path, int]:
        table: Path = ()
        while self._skip_blank():
            if self._takes("[["):
                *outer, name = self._keys()
                path = (*self._resolve(tuple(outer)), name)
                self._note(path)
                self._tables[path] = self._tables.get(path, 0) + 1
                table = self._resolve((*outer, name))
                self._note(table)
                self._at = self._text.index("]]", self._at) + 2
            elif self._takes("["):
                table = self._resolve(self._keys())
                self._note(table)
                self._at = self._text.index("]", self._at) + 1
            else:
                self._pair(table)
        return self._lines

    def _resolve(self, keys: tuple[str, ...]) -> Path:
        """Returns the path of a table's header, in which an array of tables stands for its last table."""
        path: Path = ()
        for key in keys:
            path = (*path, key)
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
        return path

    def _pair(self, table: Path) -> None:
        path = table
        start = self._at
        for key in self._keys():
            path = (*path, key)
            self._note(path, start)
        self._at = self._text.index("=", self._at) + 1
        self._value(path)

    def _value(self, path: Path) -> None:
        self._skip_blank()
        if self._takes("["):
            number = 0
            while self._skip_blank() and not self._takes("]"):
                self._note((*path, number))
                self._value((*path, number))
                self._skip_blank()
                self._takes(",")
                number += 1
        elif self._takes("{"):
            while self._skip_blank() and not self._takes("}"):
                self._pair(path)
                self._skip_blank()
                self._takes(",")
        elif found := STRING.match(self._text, self._at) or BARE.match(self._text, self._at):
            self._at = found.end()

    def _keys(self) -> tuple[str, ...]:
        keys: list[str] = []
        while found := KEY.match(self._text, self._at):
            keys.append(next(group for group in found.groups() if group is not None))
            self._at = found.end()
            if not self._takes("."):
                break
        return tuple(keys)

    def _skip_blank(self) -> bool:
        found = BLANK.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._at < len(self._text)

    def _takes(self, mark: str) -> bool:
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        return True

    def _note(self, path: Path, at: int | None = None) -> None:
        self._lines.setdefault(path, self._text.count("\n", 0, self._at if at is None else at) + 1)
