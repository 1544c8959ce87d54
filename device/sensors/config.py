"""Reads the key `sensors` of the configuration."""

KINDS = {
    "adc": "Adc",
    "bme280": "Bme280",
    "dht22": "Dht22",
    "ds18b20": "Ds18b20",
    "host": "Host",
    "max31855": "Max31855",
    "pulse": "Pulse",
    "sht31": "Sht31",
}
"""For each kind of sensor its driver's class; the module has the name of the kind."""

SENSORS_MAX = 12  # the readings of all sensors at one moment are one message, which must fit into a flash sector
NAME_BYTES_MAX = 24
HEARTBEAT_MS_MAX = 86_400_000
THRESHOLD_MAX = 1e9


class SensorConfig:
    """One sensor: the names of its readings, its driver's class and arguments, and the thresholds of its readings.

    `bands` maps full names to the bands of `device.readings.DeadBand`.
    """

    def __init__(self, section, interval_ms: int, sleeps: bool) -> None:
        kind = section.choice("kind", tuple(sorted(KINDS)))
        self.name = _read_name(section) if section.has("name") else kind
        # The machine's own readings have no prefix, because there is only one machine.
        self.prefix = "" if self.name == kind == "host" else self.name + "."
        self.error_name = self.name + ".error"
        self.driver = load(kind)
        self.arguments = self.driver.read(section)
        self.bands: dict = {}
        if section.has("thresholds"):
            self._read_bands(section, interval_ms)
        section.end()
        shortest_ms = self.shortest_interval_ms = self.driver.SHORTEST_INTERVAL_MS
        if interval_ms < shortest_ms:
            raise section.wrong("kind", kind, f"an interval_ms of {shortest_ms} or more with it")

        if sleeps and self.driver.NEEDS_POWER:
            raise section.wrong("kind", kind, "a sensor that a device with duty can put to sleep")

    def _read_bands(self, section, interval_ms: int) -> None:
        thresholds = section.section("thresholds")
        heartbeat_ms = section.integer("heartbeat_ms", interval_ms, HEARTBEAT_MS_MAX)
        for metric in self.driver.METRICS:
            if thresholds.has(metric):
                self.bands[self.prefix + metric] = (thresholds.number_above_zero(metric, THRESHOLD_MAX), heartbeat_ms)
        thresholds.end()
        self.bands[self.error_name] = (0, heartbeat_ms)


def load(kind: str):
    """Returns the driver class of a kind of sensor; only the modules in use are loaded."""
    return getattr(__import__("device.sensors." + kind, None, None, (KINDS[kind],)), KINDS[kind])


def read_sensors(section, interval_ms: int, sleeps: bool) -> list:
    """Returns a `SensorConfig` for each sensor; `sleeps`: the device sleeps between samples. Raises ConfigError."""
    sensors: list = []
    names: list = []
    for entry in section.sections("sensors", "kind", SENSORS_MAX):
        sensor = SensorConfig(entry, interval_ms, sleeps)
        if sensor.name in names:
            raise entry.wrong("name", sensor.name, "a name that no other sensor has")
        names.append(sensor.name)
        sensors.append(sensor)
    return sensors


def _read_name(section) -> str:
    name = section.text("name", NAME_BYTES_MAX)
    plain = [sign for sign in name if "a" <= sign.lower() <= "z" or "0" <= sign <= "9"]
    if name[0] not in plain or len(plain) + name.count("-") + name.count("_") != len(name):
        raise section.wrong("name", name, "letters, digits, - and _, beginning with a letter or digit")
    return name
