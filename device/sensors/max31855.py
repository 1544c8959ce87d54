"""MAX31855 on SPI (Maxim 19-5793): a thermocouple and its cold junction."""

from device.sensors import buses
from device.sensors.driver import Driver, SensorFailed

# Bits of the word (table 2).
FAULT = 1 << 16
FAULTS = (
    (1, "open"),
    (2, "shorted to ground"),
    (4, "shorted to the supply"),
)
ALWAYS_ZERO = 1 << 17 | 1 << 3


class Max31855(Driver):
    """A chip with its own chip-select pin. The bus drives the pin `mosi`, which the chip does not use."""

    METRICS = ("temperature", "cold_junction")
    RANGES = {"temperature": (-270, 1800), "cold_junction": (-55, 127)}  # of all types of thermocouples; table 5
    SHORTEST_INTERVAL_MS = 100  # the duration of a conversion, which begins after each reading

    @staticmethod
    def read(section) -> tuple:
        return buses.read_spi(section), buses.read_pin(section, "cs")

    def __init__(self, wiring: tuple, cs: int) -> None:
        from machine import Pin

        self._bus = buses.spi(wiring)
        self._select = Pin(cs, Pin.OUT, value=1)
        self._buffer = bytearray(4)

    def sample(self) -> list:
        word = self._read()
        if word != self._read():  # it converts while it is not selected, but no faster than SHORTEST_INTERVAL_MS
            raise SensorFailed("two readings of one conversion differ")
        # A data line that is stuck low would read as zero degrees at both ends; one that is stuck high, as all ones.
        if word == 0 or word & ALWAYS_ZERO:
            raise SensorFailed("no answer")
        if word & FAULT:
            raise SensorFailed("thermocouple " + " and ".join([text for bit, text in FAULTS if word & bit]))
        return [
            ("temperature", "Cel", _signed(word >> 18, 14) / 4),
            ("cold_junction", "Cel", _signed(word >> 4 & 0xFFF, 12) / 16),
        ]

    def _read(self) -> int:
        self._select(0)
        try:
            self._bus.readinto(self._buffer)
        finally:
            self._select(1)
        return int.from_bytes(self._buffer, "big")


def _signed(number: int, bits: int) -> int:
    return number - (1 << bits) if number >> (bits - 1) else number
