"""Sensor drivers, one a file. A driver is a class whose `sample()` returns a list of (name, unit, value).

Units are those registered for SenML. A source that is not there or fails is left out of the list, never raised.
"""

NAMES = ("host",)


def open_sensor(name: str):
    """The driver of that name; only drivers in use are loaded. Raises ValueError for one that does not exist."""
    if name == "host":
        from device.sensors.host import Host

        return Host()
    raise ValueError(f"no sensor {name!r}")
