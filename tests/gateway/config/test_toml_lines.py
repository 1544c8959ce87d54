"""The lines of a TOML file's keys, beside what the standard library reads of it."""

import tomllib
from collections.abc import Iterator
from typing import Any

from gateway.config.toml_lines import Path, find_lines, line_of

TEXT = '''# a comment with = and [brackets]
name = "a # is no comment here"   # but here
"quoted key" = 'literal \\'
dotted.key.name = 1979-05-27T07:32:00Z
text = """
not_a_key = 1
[not.a.table]
"""
raw = \'\'\'
nor = "this"\'\'\'
list = [
  1, # one
  "two, [2]",
  { three = 3, four = [4, 4] },
]

[table]
inline = { a = 1, b = { c = "}" } }
[table."sub table"]
key = true

[[array]]
one = 1
[array.inner]
x = -1.5e3
[[array]]
one = 11

[[array.deep]]
y = 2
[[array.deep]]
y = 22
'''


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every key, table and item of what was read."""
    if path:
        yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from paths(child, (*path, key))


def test_every_key_of_a_file_has_a_line_and_there_are_no_others() -> None:
    assert set(find_lines(TEXT)) == set(paths(tomllib.loads(TEXT)))


def test_the_line_is_the_one_on_which_the_key_stands() -> None:
    lines, rows = find_lines(TEXT), TEXT.split("\n")
    for path, row in {
        ("name",): 'name = "a # is no comment here"   # but here',
        ("dotted", "key", "name"): "dotted.key.name = 1979-05-27T07:32:00Z",
        ("list", 1): '  "two, [2]",',
        ("list", 2, "four", 1): "  { three = 3, four = [4, 4] },",
        ("table", "inline", "b", "c"): 'inline = { a = 1, b = { c = "}" } }',
        ("table", "sub table", "key"): "key = true",
        ("array", 0, "inner", "x"): "x = -1.5e3",
        ("array", 1, "one"): "one = 11",
        ("array", 1, "deep", 1, "y"): "y = 22",
    }.items():
        assert rows[lines[path] - 1] == row


def test_a_key_that_is_missing_is_where_its_table_begins() -> None:
    lines, rows = find_lines(TEXT), TEXT.split("\n")
    assert rows[line_of(lines, ("array", 0, "inner", "absent")) - 1] == "[array.inner]"
    assert line_of(lines, ("absent",)) == 1
    assert line_of({}, ()) == 1


def test_windows_line_ends_count_once() -> None:
    assert find_lines(TEXT.replace("\n", "\r\n")) == find_lines(TEXT)
