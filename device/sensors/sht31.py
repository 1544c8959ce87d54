"""SHT31 on I2C (Sensirion SHT3x-DIS): temperature and humidity."""

from device.sensors import buses
from device.sensors.driver import Driver, SensorFailed

SINGLE_SHOT = b"\x24\x00"  # high repeatability, no clock stretching: the bus stays free during a measurement (table 9)
MEASURE_MS = 16  # a measurement takes 15.5 ms at most (table 4)


class Sht31(Driver):
    """A chip at the I2C address 0x44 or 0x45."""

    METRICS = ("temperature", "humidity")
    RANGES = {"temperature": (-40, 125), "humidity": (0, 100)}  # tables 1 and 2

    @staticmethod
    def read(section) -> tuple:
        return buses.read_i2c(section), section.address("address", 0x44, 0x45)

    def __init__(self, wiring: tuple, address: int) -> None:
        self._bus = buses.i2c(wiring)
        self._address = address
        self._buffer = bytearray(6)

    def start(self) -> int:
        self._bus.writeto(self._address, SINGLE_SHOT)
        return MEASURE_MS

    def sample(self) -> list:
        self._bus.readfrom_into(self._address, self._buffer)
        # Conversion by section 4.13: raw values are in units of 1/65535 of the range.
        temperature = -45 + 175 * self._word(0) / 65535
        humidity = 100 * self._word(3) / 65535
        return [("temperature", "Cel", round(temperature, 2)), ("humidity", "%RH", round(humidity, 2))]

    def _word(self, at: int) -> int:
        high, low = self._buffer[at], self._buffer[at + 1]
        if crc8(high, low) != self._buffer[at + 2]:
            raise SensorFailed("wrong checksum")
        return high << 8 | low


def crc8(high: int, low: int) -> int:
    """Returns the CRC of a word: polynomial 0x31, initial value 0xFF; 0xBEEF gives 0x92 (section 4.12)."""
    crc = 0xFF
    for byte in (high, low):
        crc ^= byte
        for _ in range(8):
            crc = (crc << 1 ^ 0x31) & 0xFF if crc & 0x80 else crc << 1
    return crc
