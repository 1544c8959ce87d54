"""Reads the key `field` of the configuration."""

from device.sensors.buses import PIN_MAX

FULL_SCALE_MV_MAX = 100_000
HOLD_S, HOLD_S_MIN, HOLD_S_MAX = 10, 2, 60
LOG_BYTES_MIN, LOG_BYTES_MAX = 1024, 65_536


class Field:
    """What the device has for life in the field; each part is None if it has none.

    `improv`: whether it is told its Wi-Fi over its console.
    """

    def __init__(self, section) -> None:
        self.battery = _Battery(section.section("battery")) if section.has("battery") else None
        self.button = _Button(section.section("button")) if section.has("button") else None
        self.log_bytes = section.integer_or_none("log_bytes", LOG_BYTES_MIN, LOG_BYTES_MAX)
        self.improv = section.truth("improv") if section.has("improv") else False
        section.end()


class _Battery:
    """Where the battery's voltage is measured, as the sensor `adc` measures."""

    def __init__(self, section) -> None:
        self.pin = section.integer("pin", 0, PIN_MAX)
        self.full_scale_mv = section.integer("full_scale_mv", 1, FULL_SCALE_MV_MAX)
        section.end()


class _Button:
    """The button that resets the device to its file."""

    def __init__(self, section) -> None:
        self.pin = section.integer("pin", 0, PIN_MAX)
        self.hold_s = section.integer_or("hold_s", HOLD_S_MIN, HOLD_S_MAX, HOLD_S)
        section.end()
