"""`dht` of a simulated board, with the interface of micropython-lib's module, which most boards bring frozen."""

from machine import dht_readinto


class DHT22:
    """The sensor at a pin; `measure` reads its values."""

    def __init__(self, pin) -> None:
        self._pin = pin
        self.buf = bytearray(5)

    def measure(self) -> None:
        dht_readinto(self._pin, self.buf)
        if sum(self.buf[:4]) & 0xFF != self.buf[4]:
            raise Exception("checksum error")

    def humidity(self) -> float:
        return (self.buf[0] << 8 | self.buf[1]) * 0.1

    def temperature(self) -> float:
        degrees = ((self.buf[2] & 0x7F) << 8 | self.buf[3]) * 0.1
        return -degrees if self.buf[2] & 0x80 else degrees
