"""Sensor drivers, one a file. A driver is a class whose `sample()` returns a list of (name, unit, value).

Units are those registered for SenML. What cannot be had is raised, as `device.sensors.driver` says.
"""

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
"""The class in the module of each kind's name."""


def load(kind: str):
    """The class of that kind; only drivers in use are loaded."""
    return getattr(__import__("device.sensors." + kind, None, None, (KINDS[kind],)), KINDS[kind])
