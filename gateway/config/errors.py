"""The errors of a configuration file: all of them, each with its line, its key and what was expected."""

import re
import tomllib
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from gateway.config import toml_lines
from host.errors import ConfigError

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
"""TOML's names of types, by those of msgspec."""

OF_MOSQUITTO = re.compile(
    r"^\s*(acl_file|address|allow_anonymous|autosave_interval|bind_address|cafile|certfile|cleansession|connection"
    r"|include_dir|keyfile|listener|log_dest|log_type|max_connections|max_queued_messages|password_file"
    r"|per_listener_settings|persistence|persistence_location|pid_file|plugin|port|protocol|require_certificate|topic"
    r"|use_identity_as_username)[ \t]+[^\s=]",
    re.MULTILINE,
)
OF_TOML = re.compile(r"^\s*(\[|[\w.\"'-]+\s*=)", re.MULTILINE)


class Checked(msgspec.Struct, frozen=True):
    """A table of the configuration whose values must also fit together."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        """Yields the key and the text of each error.

        Args:
            values: the values of the table by key, with the defaults of the keys that it does not have. A value with
                an error of its own is not in it.
        """
        raise NotImplementedError


Struct = TypeVar("Struct", bound=msgspec.Struct)


class ConfigSource:
    """A configuration file: its table, and the errors found in it.

    Args:
        path: the file.
        text: its contents, if they have been read.

    Raises:
        ConfigError: the file cannot be read, or is not TOML.
    """

    def __init__(self, path: Path, text: str | None = None) -> None:
        self.path = path
        self._errors: list[tuple[int, str]] = []
        self._lasts = False  # whether one of them does not pass by itself
        text = read_text(path) if text is None else text
        try:
            self.table: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise _from_syntax(path, text, error) from error
        self._lines = toml_lines.find_lines(text)

    def add(self, key: str, what: str, *, may_pass: bool = False) -> None:
        """Adds an error at a key, which is written as ``listener[0].tls.key``; it may pass by itself, or it lasts."""
        self._lasts |= not may_pass
        line = self.line_of(key)
        self._errors.append((line, f"{self.path}:{line}: {key}: {what}" if key else f"{self.path}: {what}"))

    def include(self, key: str, error: ConfigError) -> None:
        """Adds an error of a file that a key names; its text has the name of that file."""
        self._lasts |= not error.may_pass
        self._errors.append((self.line_of(key), str(error)))

    def line_of(self, key: str) -> int:
        """Returns the line of a key, which is written as for ``add``; if it is missing, the line of its table."""
        return toml_lines.line_of(self._lines, _split(key))

    def raise_errors(self) -> None:
        """Raises ConfigError if there are errors, with a line for each, in the order of the file."""
        if self._errors:
            text = "\n".join(text for _, text in sorted(self._errors, key=lambda error: error[0]))
            raise ConfigError(text, may_pass=not self._lasts)

    def struct(self, table: Any, expected: type[Struct], key: str) -> Struct | None:
        """Returns the struct of the table at a key; adds all errors of the table and returns None if there are any."""
        if not isinstance(table, dict):
            found: Struct | None = self._convert(table, expected, key)
            return found
        before = len(self._errors)
        self.fields(table, expected, key)
        return self._convert(table, expected, key) if len(self._errors) == before else None

    def fields(self, table: dict[str, Any], expected: type[msgspec.Struct], key: str = "") -> dict[str, Any]:
        """Returns the valid values of a table by key, and adds an error for each other one.

        In a list of tables None stands for each table with an error.
        """
        types = typing.get_type_hints(expected, include_extras=True)
        known = {field.encode_name: field for field in msgspec.structs.fields(expected)}
        tag = [expected.__struct_config__.tag_field] if expected.__struct_config__.tag_field else []
        start = f"{key}." if key else ""
        values = {}
        for name, value in table.items():
            if name in known:
                found = self._value(value, types[known[name].name], start + name)
                if found is not None:
                    values[name] = found
            elif name not in tag:
                self.add(start + name, f"unknown key, expected one of {', '.join([*tag, *known])}")
        for name, field in known.items():
            if field.required and name not in table:
                self.add(start + name, "missing")
        if issubclass(expected, Checked):
            absent = {
                name: field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
                for name, field in known.items()
                if name not in table and not field.required
            }
            for name, what in expected.errors_in(absent | values):
                self.add(start + name, what)
        return values

    def _value(self, value: Any, expected: Any, key: str) -> Any:
        structs = _structs_of(expected)
        if structs and typing.get_origin(expected) is list:
            if not isinstance(value, list):
                return self._convert(value, expected, key)
            (item,) = typing.get_args(expected)
            return [self._value(one, item, f"{key}[{number}]") for number, one in enumerate(value)]
        chosen = [one for one in structs if len(structs) == 1 or _has_tag_of(value, one)]
        if chosen and isinstance(value, dict):
            return self.struct(value, chosen[0], key)
        return self._convert(value, expected, key)

    def _convert(self, value: Any, expected: Any, key: str) -> Any:
        try:
            return msgspec.convert(value, expected)
        except msgspec.ValidationError as error:
            self.add(*_in_the_files_words(error, expected, key))
            return None


def read_text(path: Path) -> str:
    """Returns the text of a configuration file, which may be a pipe. Raises ConfigError."""
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not TOML: not UTF-8") from error


def _structs_of(expected: Any) -> list[type[msgspec.Struct]]:
    """Returns the structs in a type: itself, its items or the members of its union."""
    if isinstance(expected, type) and issubclass(expected, msgspec.Struct):
        return [expected]
    return [struct for one in typing.get_args(expected) for struct in _structs_of(one)]


def _has_tag_of(value: Any, struct: type[msgspec.Struct]) -> bool:
    config = struct.__struct_config__
    return isinstance(value, dict) and value.get(config.tag_field) == config.tag


def _in_the_files_words(error: msgspec.ValidationError, expected: Any, key: str) -> tuple[str, str]:
    """Returns the key of an error of msgspec, and what is wrong there."""
    what, _, below = str(error).partition(" - at `$")
    key += below.rstrip("`")
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):  # the tag names the kind of table
        key, what = f"{key}.{missing[1]}", "missing"
    elif what.startswith("Invalid enum value"):
        found = inspect.type_info(expected)
        assert isinstance(found, inspect.LiteralType)
        what = f"{what.removeprefix('Invalid enum value ')}, expected one of {', '.join(map(repr, found.values))}"
    else:
        what = _in_words(what, key)
    if key.endswith(".kind"):
        *others, last = (f'"{one.__struct_config__.tag}"' for one in _structs_of(expected))
        what += f", expected {', '.join(others)} or {last}"
    return key.lstrip("."), what


def _in_words(what: str, key: str) -> str:
    """Returns the text of a msgspec error with TOML's names of types."""
    if what == "Expected `str` of length >= 1":
        return "expected text that is not empty"
    if what == "Expected `array`, got `object`":
        name = re.sub(r"\[\d+\]", "", key.lstrip("."))
        return f"expected a list, got a table: each of them is written [[{name}]]"
    what = re.sub(r"`(\w+)(?: \| null)?`", lambda name: TYPES.get(name[1], name[0]), what)
    return what.replace("Expected", "expected").replace(" <= ", " of at most ").replace(" >= ", " of at least ")


def _from_syntax(path: Path, text: str, error: tomllib.TOMLDecodeError) -> ConfigError:
    """Returns the error for a text that is not TOML."""
    if OF_MOSQUITTO.search(text) and not OF_TOML.search(text):
        return ConfigError(f"{path}: a mosquitto.conf: docs/how-to/mosquitto.md has what each of its keys is here")
    what = str(error)
    if place := re.search(r" \(at line (\d+), column (\d+)\)$", what):
        return ConfigError(f"{path}:{place[1]}: not TOML: {what[: place.start()]} (column {place[2]})")
    return ConfigError(f"{path}:{len(text.splitlines()) or 1}: not TOML: {what}")


def _split(key: str) -> toml_lines.Path:
    """Splits a key such as ``listener[0].tls.key`` into its parts."""
    parts = re.findall(r"\[(\d+)\]|([^.\[\]]+)", key)
    return tuple(int(number) if number else name for number, name in parts)
