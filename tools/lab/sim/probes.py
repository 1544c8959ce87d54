"""A sensor with its driver, as a device's configuration makes it."""

from device.config import Config
from device.sensors.probe import Probe


def probe_of(entry: dict[str, object]) -> Probe:
    """Returns the probe of an entry of `sensors`. Raises what `device.config` raises for one that is wrong."""
    keys = {
        "client_id": "bench",
        "topic": "bench",
        "port": {"kind": "tcp", "host": "gateway", "port": 1883},
        "flash": {"path": "flash", "sector_count": 6},
        "interval_ms": 5000,
        "clock": "none",
        "sensors": [entry],
        "readings_limit": 0,
        "journal": None,
    }
    return Probe(Config(keys).sensors[0])
