"""DHT22 (AM2302): temperature and humidity, with MicroPython's own driver."""

from device.sensors.buses import read_pin
from device.sensors.driver import Driver


class Dht22(Driver):
    """A sensor on a data line of its own."""

    METRICS = ("temperature", "humidity")
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
        return [
            ("temperature", "Cel", round(self._sensor.temperature(), 1)),
            ("humidity", "%RH", round(self._sensor.humidity(), 1)),
        ]
