"""device.json: what the device is called, whom it talks to, what it measures."""

import json

from device import clock
from device.payload import FORMATS, JSON
from device.sensors.config import read_sensors
from flash_store.log import MIN_SECTORS
from wire.errors import WireError
from wire.topics import check_topic_name

NAME_BYTES_MAX = 128  # of a client id: it stands in each message, and each message in one flash sector
TOPIC_BYTES_MAX = 512
SECTORS_MAX = 4096
INTERVAL_MS_MAX = 86_400_000
DUTY_INTERVAL_MS_MIN = 10_000  # below, waking costs more than the sleep saves
CONNECT_EVERY_MAX = 1000
AWAKE_MS_MIN, AWAKE_MS_MAX = 1_000, 600_000
COUNT_MAX = 0x7FFF_FFFF
NAME_EXPECTATION = "letters, digits and -:./_ beginning with a letter or digit, as SenML names are (RFC 8428, 4.5.1)"


class ConfigError(Exception):
    """The configuration cannot be used; the text names the key and what was expected."""


class Config:
    """The checked configuration, a key an attribute."""

    def __init__(self, keys: dict) -> None:
        section = _Section("", keys)
        self.client_id = section.text("client_id", NAME_BYTES_MAX)
        if not _is_senml_name(self.client_id):
            raise ConfigError(f"client_id is {_shown(self.client_id)}, expected {NAME_EXPECTATION}")
        self.topic = section.text("topic", TOPIC_BYTES_MAX)
        try:
            check_topic_name(self.topic)
        except WireError as error:
            raise ConfigError(f"topic is {self.topic!r}, expected an MQTT topic name: {error}")
        self.port = _Port(section.section("port"))
        flash = section.section("flash")
        self.flash_path = flash.text("path")
        self.sector_count = flash.integer("sector_count", MIN_SECTORS, SECTORS_MAX)
        flash.end()
        self.interval_ms = section.integer("interval_ms", 1, INTERVAL_MS_MAX)
        self.clock = _Clock(section.section_or_text("clock", "kind"))
        self.duty = _Duty(section.section("duty")) if section.has("duty") else None
        if self.duty and self.interval_ms < DUTY_INTERVAL_MS_MIN:
            raise section.wrong("interval_ms", self.interval_ms, f"{DUTY_INTERVAL_MS_MIN} or more with duty")
        self.sensors = read_sensors(section, self.interval_ms, self.duty is not None)
        self.payload = section.choice("payload", FORMATS) if section.has("payload") else JSON
        self.readings_limit = section.integer("readings_limit", 0, COUNT_MAX)
        self.journal = section.text_or_null("journal")
        section.end()
        if self.readings_limit and self.journal is None:
            raise ConfigError("journal is null, expected a path: readings_limit counts over all boots by it")


class _Port:
    def __init__(self, section) -> None:
        self.kind = section.choice("kind", ("tcp", "uart"))
        if self.kind == "tcp":
            self.host = section.text("host")
            self.port = section.integer("port", 1, 65_535)
        else:
            self.path = section.text("path")
            self.baud = section.integer("baud", 1, COUNT_MAX)
        section.end()


class _Duty:
    def __init__(self, section) -> None:
        self.connect_every = section.integer("connect_every", 1, CONNECT_EVERY_MAX)
        self.awake_ms = section.integer("awake_ms", AWAKE_MS_MIN, AWAKE_MS_MAX)
        section.end()


class _Clock:
    def __init__(self, section) -> None:
        self.kind = section.choice("kind", clock.KINDS)
        self.host = section.text("host", NAME_BYTES_MAX) if self.kind == clock.NTP else None
        section.end()


class _Section:
    """A JSON object whose keys are all wanted, each once asked for."""

    def __init__(self, path: str, keys) -> None:
        if not isinstance(keys, dict):
            raise ConfigError(f"{path or 'the configuration'} is {_shown(keys)}, expected an object of keys and values")
        self._path = path
        self._keys = dict(keys)

    def text(self, key: str, bytes_max: int = 4096) -> str:
        value = self._take(key, "a string")
        if not isinstance(value, str) or not 0 < len(value.encode()) <= bytes_max:
            raise self.wrong(key, value, f"a string of 1 to {bytes_max} bytes")
        return value

    def text_or_null(self, key: str) -> str | None:
        value = self._take(key, "a string or null")
        if value is not None and not (isinstance(value, str) and value):
            raise self.wrong(key, value, "a string or null")
        return value

    def integer(self, key: str, least: int, most: int) -> int:
        expectation = f"an integer from {least} to {most}"
        value = self._take(key, expectation)
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(key, value, expectation)
        return value

    def choice(self, key: str, options: tuple) -> str:
        expectation = " or ".join([f'"{option}"' for option in options])
        value = self._take(key, expectation)
        if value not in options:
            raise self.wrong(key, value, expectation)
        return value

    def number_above_zero(self, key: str, most: float) -> float:
        expectation = f"a number above 0, at most {most:g}"
        value = self._take(key, expectation)
        if type(value) not in (int, float) or not 0 < value <= most:
            raise self.wrong(key, value, expectation)
        return value

    def sections(self, key: str, main_key: str, most: int) -> list:
        """The sections of a list; a string stands for one with only `main_key`."""
        expectation = f"a list of 1 to {most} objects, or strings for their {main_key}"
        value = self._take(key, expectation)
        if not isinstance(value, list) or not 0 < len(value) <= most:
            raise self.wrong(key, value, expectation)
        entries = [{main_key: entry} if isinstance(entry, str) else entry for entry in value]
        return [_Section(f"{self._path_of(key)}[{number}]", entry) for number, entry in enumerate(entries)]

    def section_or_text(self, key: str, main_key: str):
        """A section; a string stands for one with only `main_key`."""
        value = self._take(key, f"an object, or a string for its {main_key}")
        return _Section(self._path_of(key), {main_key: value} if isinstance(value, str) else value)

    def section(self, key: str):
        return _Section(self._path_of(key), self._take(key, "an object of keys and values"))

    def has(self, key: str) -> bool:
        return key in self._keys

    def end(self) -> None:
        if self._keys:
            raise ConfigError(f"{self._path_of(sorted(self._keys)[0])} is no key that this firmware knows")

    def _take(self, key: str, expectation: str):
        if key not in self._keys:
            raise ConfigError(f"{self._path_of(key)} is missing, expected {expectation}")
        return self._keys.pop(key)

    def wrong(self, key: str, value, expectation: str) -> ConfigError:
        return ConfigError(f"{self._path_of(key)} is {_shown(value)}, expected {expectation}")

    def _path_of(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key


def load(path: str) -> Config:
    """Raises ConfigError, naming the file, the key and what was expected."""
    try:
        with open(path) as file:
            keys = json.load(file)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}")
    except ValueError as error:
        raise ConfigError(f"{path} is no JSON: {error}")
    try:
        return Config(keys)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}")


def _is_senml_name(text: str) -> bool:
    plain = [character for character in text if "a" <= character.lower() <= "z" or "0" <= character <= "9"]
    return text[0] in plain and len(plain) + sum([text.count(sign) for sign in "-:./_"]) == len(text)


def _shown(value) -> str:
    return json.dumps(value)[:80]
