"""What is wrong in a configuration file: in which file, on which line, at which key, and what was expected there."""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from gateway import toml_lines
from gateway.errors import ConfigError

TYPES = {
    "array": "a list",
    "bool": "true or false",
    "date": "a date",
    "datetime": "a time",
    "float": "a number with a fraction",
    "int": "a number",
    "list": "a list",
    "object": "a table",
    "str": "text",
    "time": "a time",
}
"""The names that a user of TOML knows, by msgspec's."""


def located(path: Path, key: str, what: str) -> ConfigError:
    """The error of a key, written as ``listener[0].tls.key``."""
    try:
        line = toml_lines.line_of(toml_lines.find_lines(path.read_text("utf-8")), _split(key))
    except (OSError, ValueError):  # it has changed since it was found wrong
        return ConfigError(f"{path}: {key}: {what}")
    return ConfigError(f"{path}:{line}: {key}: {what}")


def from_syntax(path: Path, text: str, error: tomllib.TOMLDecodeError) -> ConfigError:
    """The error of a text that is no TOML."""
    what = str(error)
    if place := re.search(r" \(at line (\d+), column (\d+)\)$", what):
        return ConfigError(f"{path}:{place[1]}: not TOML: {what[: place.start()]} (column {place[2]})")
    return ConfigError(f"{path}:{len(text.splitlines()) or 1}: not TOML: {what}")


def from_validation(
    path: Path, error: msgspec.ValidationError, expected: type, tables: Any, under: str = ""
) -> ConfigError:
    """The error of tables that are not as expected, in the file's own words.

    Args:
        path: the file.
        error: what msgspec says.
        expected: the type that the tables were converted to.
        tables: the tables.
        under: the key that they stand at.
    """
    what, _, key = str(error).partition(" - at `$")
    key = under + key.rstrip("`")
    if field := re.fullmatch(r"Object (contains unknown|missing required) field `(.*)`", what):
        known = _keys_of(_type_at(expected, tables, _parts(key, under)))
        key = f"{key}.{field[2]}"
        if field[1] == "missing required":
            what = "missing"
        else:
            what = f"unknown key, expected one of {', '.join(known)}" if known else "unknown key"
    elif what.startswith("Invalid enum value"):
        found = _type_at(expected, tables, _parts(key, under))
        assert isinstance(found, inspect.LiteralType)
        what = f"{what.removeprefix('Invalid enum value ')}, expected one of {', '.join(map(repr, found.values))}"
    elif named := re.match(r"(\w+): ", what):  # a check of our own, which names the key in its table
        key, what = f"{key}.{named[1]}", what[named.end() :]
    else:
        what = _in_words(what, key)
    if key.endswith(".kind"):
        what += ', expected "tcp", "websocket", "unix" or "serial"'
    key = key.lstrip(".")
    return located(path, key, what) if key else ConfigError(f"{path}: {what}")


def _in_words(what: str, key: str) -> str:
    """What msgspec says of a value, without the names that types have in programs."""
    if what == "Expected `str` of length >= 1":
        return "expected text that is not empty"
    if what == "Expected `array`, got `object`":
        return f"expected a list, got a table: each of them is written [[{key.lstrip('.')}]]"
    what = re.sub(r"`(\w+)(?: \| null)?`", lambda name: TYPES.get(name[1], name[0]), what)
    return what.replace("Expected", "expected").replace(" <= ", " of at most ").replace(" >= ", " of at least ")


def _split(key: str) -> toml_lines.Path:
    """``listener[0].tls.key`` in its parts."""
    parts = re.findall(r"\[(\d+)\]|([^.\[\]]+)", key)
    return tuple(int(number) if number else name for number, name in parts)


def _parts(key: str, under: str) -> toml_lines.Path:
    """The parts of a key, from the tables on that were converted."""
    return _split(key.removeprefix(under).lstrip("."))


def _type_at(expected: type, tables: Any, path: toml_lines.Path) -> inspect.Type:
    """What is expected at a path of the tables."""
    found: inspect.Type = inspect.type_info(expected)
    for part in path:
        if isinstance(found, inspect.ListType) and isinstance(part, int):
            found = found.item_type
        elif isinstance(found, inspect.StructType):
            found = next(field.type for field in found.fields if field.encode_name == part)
        tables = tables[part]
        if isinstance(found, inspect.UnionType):
            found = _chosen(found, tables)
    return found


def _keys_of(table: inspect.Type) -> list[str]:
    if not isinstance(table, inspect.StructType):
        return []
    tag = [table.tag_field] if table.tag_field else []
    return tag + [field.encode_name for field in table.fields]


def _chosen(union: inspect.UnionType, table: Any) -> inspect.Type:
    """The table's own type among several: the one of its tag, or the only one that is a table."""
    structs = [one for one in union.types if isinstance(one, inspect.StructType)]
    return next((one for one in structs if one.tag_field and table.get(one.tag_field) == one.tag), structs[0])
