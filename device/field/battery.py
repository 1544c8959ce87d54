"""The voltage of the device's battery, at a converter pin with a divider before it."""

from device.sensors.adc import Adc


def read_volts(config) -> float | None:
    """Returns the voltage before the divider, in V; None if it cannot be read.

    Args:
        config: has `pin`, and `full_scale_mv` as the sensor `adc` has it.
    """
    try:
        return Adc(config.pin, config.full_scale_mv).sample()[0][2]
    except Exception:  # a converter must not keep the device from its broker
        return None
