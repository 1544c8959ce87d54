"""What is wrong in a configuration file: all of it, each with its line, its key and what was expected there."""

import re
import tomllib
import typing
from pathlib import Path
from typing import Any, TypeVar

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

OF_MOSQUITTO = re.compile(
    r"^\s*(acl_file|address|allow_anonymous|autosave_interval|bind_address|cafile|certfile|cleansession|connection"
    r"|include_dir|keyfile|listener|log_dest|log_type|max_connections|max_queued_messages|password_file"
    r"|per_listener_settings|persistence|persistence_location|pid_file|plugin|port|protocol|require_certificate|topic"
    r"|use_identity_as_username)[ \t]+[^\s=]",
    re.MULTILINE,
)
OF_TOML = re.compile(r"^\s*(\[|[\w.\"'-]+\s*=)", re.MULTILINE)

Struct = TypeVar("Struct", bound=msgspec.Struct)


class ConfigSource:
    """A configuration file: its table, and the errors that are found in it.

    Args:
        path: the file.
        text: what is in it, where it has been read.

    Raises:
        ConfigError: the file cannot be read, or is no TOML.
    """

    def __init__(self, path: Path, text: str | None = None) -> None:
        self.path = path
        self._errors: list[tuple[int, str]] = []
        text = read_text(path) if text is None else text
        try:
            self.table: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise _from_syntax(path, text, error) from error
        self._lines = toml_lines.find_lines(text)

    def add(self, key: str, what: str) -> None:
        """Notes what is wrong at a key, written as ``listener[0].tls.key``."""
        line = toml_lines.line_of(self._lines, _split(key))
        self._errors.append((line, f"{self.path}:{line}: {key}: {what}" if key else f"{self.path}: {what}"))

    def include(self, key: str, error: ConfigError) -> None:
        """Notes what is wrong in a file that a key names; the error names that file itself."""
        self._errors.append((toml_lines.line_of(self._lines, _split(key)), str(error)))

    def raise_errors(self) -> None:
        """Raises ConfigError with all that was found, a line each in the file's order; nothing where all is right."""
        if self._errors:
            raise ConfigError("\n".join(text for _, text in sorted(self._errors, key=lambda error: error[0])))

    def struct(self, table: Any, expected: type[Struct], key: str) -> Struct | None:
        """Returns the struct of a table that stands at a key, or notes all that is wrong in it and returns None."""
        if not isinstance(table, dict):
            found: Struct | None = self._convert(table, expected, key)
            return found
        before = len(self._errors)
        self.fields(table, expected, key)
        return self._convert(table, expected, key) if len(self._errors) == before else None

    def fields(self, table: dict[str, Any], expected: type[msgspec.Struct], key: str = "") -> dict[str, Any]:
        """Returns the values of a table's keys that are right, and notes what is wrong with the others.

        In a list of tables None stands for each that is wrong.
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
    """Returns a configuration file's text; the file may be a pipe. Raises ConfigError."""
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not TOML: not UTF-8") from error


def _structs_of(expected: Any) -> list[type[msgspec.Struct]]:
    """The structs that a type is, holds or chooses from."""
    if isinstance(expected, type) and issubclass(expected, msgspec.Struct):
        return [expected]
    return [struct for one in typing.get_args(expected) for struct in _structs_of(one)]


def _has_tag_of(value: Any, struct: type[msgspec.Struct]) -> bool:
    config = struct.__struct_config__
    return isinstance(value, dict) and value.get(config.tag_field) == config.tag


def _in_the_files_words(error: msgspec.ValidationError, expected: Any, key: str) -> tuple[str, str]:
    """Returns the key that an error of msgspec is about, and what is wrong there."""
    what, _, below = str(error).partition(" - at `$")
    key += below.rstrip("`")
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):  # the tag that says which table it is
        key, what = f"{key}.{missing[1]}", "missing"
    elif what.startswith("Invalid enum value"):
        found = inspect.type_info(expected)
        assert isinstance(found, inspect.LiteralType)
        what = f"{what.removeprefix('Invalid enum value ')}, expected one of {', '.join(map(repr, found.values))}"
    elif named := re.match(r"(\w+): ", what):  # a check of our own, which names the key in its table
        key, what = f"{key}.{named[1]}", what[named.end() :]
    else:
        what = _in_words(what, key)
    if key.endswith(".kind"):
        what += ', expected "tcp", "websocket", "unix" or "serial"'
    return key.lstrip("."), what


def _in_words(what: str, key: str) -> str:
    """What msgspec says of a value, without the names that types have in programs."""
    if what == "Expected `str` of length >= 1":
        return "expected text that is not empty"
    if what == "Expected `array`, got `object`":
        return f"expected a list, got a table: each of them is written [[{key.lstrip('.')}]]"
    what = re.sub(r"`(\w+)(?: \| null)?`", lambda name: TYPES.get(name[1], name[0]), what)
    return what.replace("Expected", "expected").replace(" <= ", " of at most ").replace(" >= ", " of at least ")


def _from_syntax(path: Path, text: str, error: tomllib.TOMLDecodeError) -> ConfigError:
    """The error of a text that is no TOML."""
    if OF_MOSQUITTO.search(text) and not OF_TOML.search(text):
        return ConfigError(f"{path}: a mosquitto.conf: docs/how-to/mosquitto.md has what each of its keys is here")
    what = str(error)
    if place := re.search(r" \(at line (\d+), column (\d+)\)$", what):
        return ConfigError(f"{path}:{place[1]}: not TOML: {what[: place.start()]} (column {place[2]})")
    return ConfigError(f"{path}:{len(text.splitlines()) or 1}: not TOML: {what}")


def _split(key: str) -> toml_lines.Path:
    """``listener[0].tls.key`` in its parts."""
    parts = re.findall(r"\[(\d+)\]|([^.\[\]]+)", key)
    return tuple(int(number) if number else name for number, name in parts)
