"""Measures the voltage at one of the board's analogue pins."""

from device.sensors.buses import read_pin
from device.sensors.driver import Driver

CONVERSIONS = 16  # the reading is the mean of this many conversions, to reduce noise
FULL_SCALE = 65535  # the largest value of `read_u16`
FULL_SCALE_MV_MAX = 1_000_000


class Adc(Driver):
    """Converts the converter's value to a voltage.

    Args:
        pin: the pin's number.
        full_scale_mv: the voltage (mV), before any divider, for which the converter gives its largest value.
    """

    METRICS = ("voltage",)

    @staticmethod
    def read(section) -> tuple:
        return read_pin(section), section.integer("full_scale_mv", 1, FULL_SCALE_MV_MAX)

    def __init__(self, pin: int, full_scale_mv: int) -> None:
        from machine import ADC, Pin

        self._adc = ADC(Pin(pin))
        if hasattr(ADC, "ATTN_11DB"):  # an ESP32: without attenuation it measures 1 V at most
            self._adc.atten(ADC.ATTN_11DB)
        self._full_scale_mv = full_scale_mv

    def sample(self) -> list:
        total = 0
        for _ in range(CONVERSIONS):
            total += self._adc.read_u16()
        millivolts = total * self._full_scale_mv // (CONVERSIONS * FULL_SCALE)
        return [("voltage", "V", millivolts / 1000)]
