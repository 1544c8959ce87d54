"""Measures the voltage at one of the board's analogue pins."""

from device.sensors.buses import read_pin
from device.sensors.driver import Driver, SensorFailed

CONVERSIONS = 16  # the reading is the mean of this many conversions, to reduce noise
FULL_SCALE = 65535  # the largest value of `read_u16`
FULL_SCALE_MV_MAX = 1_000_000
REFERENCE_UV = 3_300_000


class Adc(Driver):
    """Converts the voltage at the pin to the voltage before a divider.

    An ESP32's converter is neither linear nor exact, and measures up to some 3.1 V. There the board's own calibration
    gives the voltage at the pin, and the largest value means that there is more.

    Args:
        pin: the pin's number.
        full_scale_mv: the voltage (mV), before any divider, that gives 3.3 V at the pin.
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
        self._read_uv = getattr(self._adc, "read_uv", None)
        self._full_scale_mv = full_scale_mv

    def sample(self) -> list:
        convert, largest = self._read_uv or self._adc.read_u16, REFERENCE_UV if self._read_uv else FULL_SCALE
        if self._read_uv and self._adc.read_u16() == FULL_SCALE:
            raise SensorFailed("the voltage is higher than the converter can measure")
        total = 0
        for _ in range(CONVERSIONS):
            total += convert()
        return [("voltage", "V", total * self._full_scale_mv // (CONVERSIONS * largest) / 1000)]
