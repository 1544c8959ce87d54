"""DHT22 (AM2302): temperature and humidity. MicroPython's own driver reads the five bytes and checks their sum.

The sum is right in a frame of zeros, in the frame of a DHT11, and in frames of copies of the chip that tell
temperatures below zero in two's complement, where the datasheet has a sign and a number.
"""

from device.sensors.buses import read_pin
from device.sensors.driver import Driver, SensorFailed

COLDEST = 400  # tenths of a degree below zero


class Dht22(Driver):
    """A sensor on a data line of its own."""

    METRICS = ("temperature", "humidity")
    RANGES = {"temperature": (-40, 80), "humidity": (0, 100)}
    SHORTEST_INTERVAL_MS = 2_000  # a sensor that is asked more often does not answer

    @staticmethod
    def read(section) -> tuple:
        return (read_pin(section),)

    def __init__(self, pin: int) -> None:
        from dht import DHT22
        from machine import Pin

        self._sensor = DHT22(Pin(pin))

    def sample(self) -> list:
        self._sensor.measure()
        frame = self._sensor.buf
        humidity, temperature = frame[0] << 8 | frame[1], frame[2] << 8 | frame[3]
        if not humidity and not temperature:
            raise SensorFailed("all bits are zero")
        if temperature & 0x8000:
            number = temperature & 0x7FFF
            temperature = -number if number <= COLDEST else temperature - 0x1_0000
        return [("temperature", "Cel", temperature / 10), ("humidity", "%RH", humidity / 10)]
