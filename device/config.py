"""Reads and checks device.json: the name of the device, its brokers, its sensors."""

import json

from device import clock
from device.readings.payload import FORMATS, JSON
from device.sensors.config import read_sensors
from device.values import ConfigError, Values
from flash_store.errors import MIN_SECTORS, POLICIES
from wire.codec import MQTT_3_1_1, MQTT_5
from wire.errors import WireError
from wire.topics import check_topic_filter, check_topic_name, matches, parse_shared

NAME_BYTES_MAX = 128  # of a client id: each message contains it and must fit into one flash sector
TOPIC_BYTES_MAX = 512
SSID_BYTES_MAX, KEY_DIGITS = 32, 64  # of WPA: a password has 63 bytes at most; 64 hexadecimal digits are the key itself
NETWORKS_MAX, PORTS_MAX = 8, 4
HOST_NAME_BYTES_MAX = 32  # of MicroPython's `network.hostname`
LOGIN_BYTES_MAX = 256  # of a user name, and of a password
PASSWORD, SCRAM = "password", "scram-sha-256"
RESTART_AFTER_S_MIN, RESTART_AFTER_S_MAX = 60, 2_592_000
SECTORS, SECTORS_MAX = 64, 4096
TCP_PORT, TLS_PORT = 1883, 8883  # as IANA registers them for MQTT
BAUD = 115_200
INTERVAL_MS_MAX = 86_400_000
DUTY_INTERVAL_MS_MIN = 10_000  # with a shorter interval, waking costs more energy than the sleep saves
CONNECT_EVERY_MAX = 1000
HEALTH_INTERVAL_MS_MIN = 1_000
WATCHDOG_MS_MIN = 1_000  # a shorter watchdog would reset the board while a sensor measures
RETRY_INTERVAL_MS_MAX = 3_600_000
LEVELS = {"3.1.1": MQTT_3_1_1, "5": MQTT_5}
LOST_SESSION = ("drop", "resend")
AWAKE_MS_MIN, AWAKE_MS_MAX = 1_000, 600_000
COUNT_MAX = 0x7FFF_FFFF
NAME_EXPECTATION = "letters, digits and -:./_ beginning with a letter or digit, as SenML names are (RFC 8428, 4.5.1)"


class Config(Values):
    """The checked configuration, with an attribute for each key."""

    def __init__(self, keys: dict) -> None:
        section = _Section("", keys)
        self.client_id = section.text("client_id", NAME_BYTES_MAX)
        if not _is_senml_name(self.client_id):
            raise ConfigError(f"client_id is {_shown(self.client_id)}, expected {NAME_EXPECTATION}")
        self.topic = section.topic("topic")
        self.networks = _read_networks(section) if section.has("network") else []
        self.host_name = section.text("host_name", HOST_NAME_BYTES_MAX) if section.has("host_name") else None
        self.country = section.country_or_none("country")
        self.ports = _read_ports(section)
        flash = section.section("flash")
        self.flash_path = flash.text("path")
        self.sector_count = flash.integer_or("sector_count", MIN_SECTORS, SECTORS_MAX, SECTORS)
        self.on_full = flash.choice_or("on_full", POLICIES, "reject_new")
        flash.end()
        self._read_mqtt(section)
        self.field = _read_field(section) if section.has("field") else None
        self.restart_after_s = section.integer_or_none("restart_after_s", RESTART_AFTER_S_MIN, RESTART_AFTER_S_MAX)
        self.watchdog_ms = section.integer_or_none("watchdog_ms", WATCHDOG_MS_MIN, COUNT_MAX)
        self.health_interval_ms = section.integer_or_none("health_interval_ms", HEALTH_INTERVAL_MS_MIN, INTERVAL_MS_MAX)
        self.interval_ms = section.integer("interval_ms", 1, INTERVAL_MS_MAX)
        self.clock = _Clock(section.section_or_text("clock", "kind", clock.GATEWAY))
        self.duty = _Duty(section.section("duty")) if section.has("duty") else None
        if self.duty and self.interval_ms < DUTY_INTERVAL_MS_MIN:
            raise section.wrong("interval_ms", self.interval_ms, f"{DUTY_INTERVAL_MS_MIN} or more with duty")
        self.sensors = read_sensors(section, self.interval_ms, self.duty is not None)
        self.payload = section.choice("payload", FORMATS) if section.has("payload") else JSON
        self.readings_limit = section.integer_or("readings_limit", 0, COUNT_MAX, 0)
        self.journal = section.text_or_null("journal") if section.has("journal") else None
        section.end()
        shortest = [sensor.shortest_interval_ms for sensor in self.sensors]
        self.shortest_interval_ms = max(shortest + [DUTY_INTERVAL_MS_MIN if self.duty else 1])
        if self.readings_limit and self.journal is None:
            raise ConfigError("journal is null, expected a path: readings_limit counts over all boots by it")
        if self.duty and self.restart_after_s:
            raise section.wrong("restart_after_s", self.restart_after_s, "none with duty, which starts anew each time")
        if self.duty and self.field and self.field.improv:
            raise ConfigError("field.improv is true, expected false with duty: a device that sleeps does not listen")
        if self.duty and not self.qos:
            raise section.wrong("qos", 0, "1 or 2 with duty: a sleep forgets what is not stored")
        if self.journal is not None and not self.qos:
            raise ConfigError("journal is a path, expected null with qos 0: only what is stored can be counted")

    def _read_mqtt(self, section) -> None:
        self.qos = section.integer("qos", 0, 2) if section.has("qos") else 1
        self.protocol_level = LEVELS[section.choice_or("mqtt_version", tuple(sorted(LEVELS)), "5")]
        if self.protocol_level != MQTT_5 and any(port.is_scram for port in self.ports):
            raise section.wrong("mqtt_version", "3.1.1", f'"5" with port.authentication "{SCRAM}"')
        self.retry_interval_ms = section.integer_or_none("retry_interval_ms", 0, RETRY_INTERVAL_MS_MAX)
        self.resends = section.choice_or("lost_session", LOST_SESSION, "resend") == "resend"
        self.status = _Status(section.section_or_text("status", "topic")) if section.has("status") else None
        self.commands = None
        if section.has("commands"):
            self.commands = section.text("commands", TOPIC_BYTES_MAX)
            try:
                check_topic_filter(self.commands)
            except WireError as error:
                raise section.wrong("commands", self.commands, f"an MQTT topic filter: {error}")
            for own in [self.topic, self.topic + "/answer"] + ([self.status.topic] if self.status else []):
                if matches(parse_shared(self.commands)[1], own):  # the device would answer its own answers for ever
                    raise section.wrong("commands", self.commands, f"a filter that does not take its own {own}")
        if section.has("until"):
            from device.mqtt.receipts import read_until

            read_until(section, self)


class Readable:
    """The usable part of a configuration with an error, so that safe mode can report the error.

    It has `ports`, `client_id`, `status`, `networks`, `host_name` and `country`. Raises `error`, or another
    ConfigError, if these do not suffice for a report.
    """

    protocol_level = MQTT_5
    retry_interval_ms = None

    def __init__(self, path: str, error: Exception) -> None:
        section = _Section("", _read_keys(path))
        self.ports: list = []
        self.networks: list = []
        self.status = self.host_name = self.country = None
        try:
            self.ports = _read_ports(section)
            self.client_id = section.text("client_id", NAME_BYTES_MAX)
            self.networks = _read_networks(section) if section.has("network") else []
            self.country = section.country_or_none("country")
            self.status = _Status(section.section_or_text("status", "topic"))
        except ConfigError:
            pass
        if self.status is None and not (self.ports and self.ports[0].kind == "uart"):
            raise error


def _read_field(section):
    from device.field.config import Field  # loaded only here: few devices use it

    return Field(section.section("field"))


def _read_networks(section) -> list:
    return [_Wifi(one) for one in section.some("network", NETWORKS_MAX)]


def _read_ports(section) -> list:
    return [_Port(one) for one in section.some("port", PORTS_MAX)]


class _Wifi:
    def __init__(self, section) -> None:
        self.ssid = section.text("ssid", SSID_BYTES_MAX)
        self.password = section.text_or_null("password")
        length = len(self.password.encode()) if self.password else 0
        if length > KEY_DIGITS or (length == KEY_DIGITS and self.password.strip("0123456789abcdefABCDEF")):
            raise section.wrong("password", "", "a string of 1 to 63 bytes, or a key of 64 hexadecimal digits")
        self.address = _Address(section.section("address")).whole if section.has("address") else None
        section.end()


class _Address:
    """A fixed IPv4 address; `whole` is the tuple that MicroPython's `ifconfig` takes."""

    def __init__(self, section) -> None:
        self.whole = (section.ip("ip"), section.ip("netmask"), section.ip("gateway"), section.ip("dns"))
        section.end()


class _Port:
    def __init__(self, section) -> None:
        self.kind = section.choice_or("kind", ("tcp", "tls", "uart"), "tcp")
        if self.kind != "uart":
            self.host = section.text("host")
            self.port = section.integer_or("port", 1, 65_535, TLS_PORT if self.kind == "tls" else TCP_PORT)
            if self.kind == "tls":
                self._read_tls(section)
        else:
            self.path = section.text("path")
            self.baud = section.integer_or("baud", 1, COUNT_MAX, BAUD)
        self._read_login(section)
        section.end()

    def _read_login(self, section) -> None:
        has_login = section.has("user") or section.has("password") or section.has("authentication")
        self.user = section.text("user", LOGIN_BYTES_MAX) if has_login else None
        self.password = section.text("password", LOGIN_BYTES_MAX) if has_login else None
        self.is_scram = has_login and section.choice_or("authentication", (PASSWORD, SCRAM), PASSWORD) == SCRAM
        if self.is_scram and any(not " " <= character <= "~" for character in self.password or ""):
            raise section.wrong("password", self.password, f'printable ASCII with authentication "{SCRAM}"')

    def _read_tls(self, section) -> None:
        self.server_name = section.text("server_name") if section.has("server_name") else self.host
        self.ca = section.text("ca")
        has_certificate = section.has("certificate") or section.has("key")
        self.certificate = section.text("certificate") if has_certificate else None
        self.key = section.text("key") if has_certificate else None


class _Status:
    """The topic of the device's status messages, and whether brokers retain them."""

    def __init__(self, section) -> None:
        self.topic = section.topic("topic")
        self.retain = section.truth("retain") if section.has("retain") else True
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
    """A JSON object. Each key is taken once; `end` raises ConfigError if a key is left that nothing has taken."""

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

    def integer_or(self, key: str, least: int, most: int, default: int) -> int:
        return self.integer(key, least, most) if key in self._keys else default

    def address(self, key: str, least: int, most: int) -> int:
        """An address on a bus: an integer, or text as in data sheets, "0x76"; `least` if the key is missing."""
        expectation = f'an address from "0x{least:02x}" to "0x{most:02x}", or {least} to {most}'
        value = given = self._keys.pop(key, least)
        if isinstance(given, str):
            try:
                value = int(given, 16) if given[:2] == "0x" else -1
            except ValueError:
                value = -1
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(key, given, expectation)
        return value

    def integer_or_none(self, key: str, least: int, most: int) -> int | None:
        return self.integer(key, least, most) if key in self._keys else None

    def choice(self, key: str, options: tuple) -> str:
        expectation = " or ".join([f'"{option}"' for option in options])
        value = self._take(key, expectation)
        if value not in options:
            raise self.wrong(key, value, expectation)
        return value

    def choice_or(self, key: str, options: tuple, default: str) -> str:
        return self.choice(key, options) if key in self._keys else default

    def truth(self, key: str) -> bool:
        value = self._take(key, "true or false")
        if not isinstance(value, bool):
            raise self.wrong(key, value, "true or false")
        return value

    def topic(self, key: str) -> str:
        name = self.text(key, TOPIC_BYTES_MAX)
        try:
            check_topic_name(name)
        except WireError as error:
            raise self.wrong(key, name, f"an MQTT topic name: {error}")
        return name

    def number_above_zero(self, key: str, most: float) -> float:
        expectation = f"a number above 0, at most {most:g}"
        value = self._take(key, expectation)
        if type(value) not in (int, float) or not 0 < value <= most:
            raise self.wrong(key, value, expectation)
        return value

    def sections(self, key: str, main_key: str, most: int) -> list:
        """The sections of a list; a string stands for a section with only `main_key`."""
        expectation = f"a list of at most {most} objects, or strings for their {main_key}"
        value = self._take(key, expectation)
        if not isinstance(value, list) or len(value) > most:
            raise self.wrong(key, value, expectation)
        entries = [{main_key: entry} if isinstance(entry, str) else entry for entry in value]
        return [_Section(f"{self._path_of(key)}[{number}]", entry) for number, entry in enumerate(entries)]

    def some(self, key: str, most: int) -> list:
        """The sections of a list that is not empty; an object stands for a list of one."""
        expectation = f"an object of keys and values, or a list of 1 to {most}"
        value = self._take(key, expectation)
        if not isinstance(value, list):
            return [_Section(self._path_of(key), value)]
        if not 0 < len(value) <= most:
            raise self.wrong(key, value, expectation)
        return [_Section(f"{self._path_of(key)}[{number}]", entry) for number, entry in enumerate(value)]

    def ip(self, key: str) -> str:
        text = self.text(key)
        parts = text.split(".")
        if len(parts) != 4 or not all(part.isdigit() and int(part) < 256 for part in parts):
            raise self.wrong(key, text, "an IPv4 address such as 192.168.1.20")
        return text

    def country_or_none(self, key: str) -> str | None:
        code = self.text(key, 2) if key in self._keys else None
        if code is not None and (len(code) != 2 or not all("A" <= letter <= "Z" for letter in code)):
            raise self.wrong(key, code, "two capital letters of ISO 3166, such as DE")
        return code

    def section_or_text(self, key: str, main_key: str, default: str | None = None):
        """A section; a string stands for a section with only `main_key`, and `default` for a missing key."""
        is_there = key in self._keys or default is None
        value = self._take(key, f"an object, or a string for its {main_key}") if is_there else default
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
        shown = _shown("..." if key == "password" else value)  # an error goes to logs and status messages
        return ConfigError(f"{self._path_of(key)} is {shown}, expected {expectation}")

    def _path_of(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key


def load(path: str):
    """Returns the configuration as `Values`. Raises ConfigError, naming file, key and what was expected."""
    keys = _read_keys(path)
    try:
        return _values(Config(keys))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}")


def read_place(keys: dict) -> tuple:
    """Reads networks and ports from an object with the keys `network` and `port`, or one of them.

    Returns two lists of `Values`; None for a key that is missing. Raises ConfigError, also if both are missing.
    """
    section = _Section("", keys)
    networks = _read_networks(section) if section.has("network") else None
    ports = _read_ports(section) if section.has("port") or networks is None else None
    section.end()
    return tuple([None if part is None else [_values(one) for one in part] for part in (networks, ports)])


def _values(checked) -> Values:
    values = Values()
    for key, value in checked.__dict__.items():
        if isinstance(value, PARTS):
            value = _values(value)
        setattr(values, key, [_values(one) for one in value] if isinstance(value, list) else value)
    return values


PARTS = (_Wifi, _Port, _Status, _Duty, _Clock)


def _read_keys(path: str):
    try:
        with open(path) as file:
            return json.load(file)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}")
    except ValueError as error:
        raise ConfigError(f"{path} is no JSON: {error}")


def _is_senml_name(text: str) -> bool:
    plain = [character for character in text if "a" <= character.lower() <= "z" or "0" <= character <= "9"]
    return text[0] in plain and len(plain) + sum([text.count(sign) for sign in "-:./_"]) == len(text)


def _shown(value) -> str:
    return json.dumps(value)[:80]
