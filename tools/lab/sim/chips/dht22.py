"""An Aosong AM2302, sold as DHT22: tenths of a percent and of a degree, the sign apart, and a sum."""

SHORTEST_MS = 2000  # between two readings
ETIMEDOUT = 110


class Dht22:
    """The sensor with that humidity (tenths of a percent) and temperature (tenths of a degree Celsius).

    It answers nothing for two seconds after it got power and after a reading. `now_ms` returns the time."""

    def __init__(self, now_ms, humidity: int, temperature: int) -> None:
        self.humidity = humidity
        self.temperature = temperature
        self.flipped_bit: int | None = None  # of the five bytes, on the wire
        self.is_complement = False  # as copies of the chip do: below zero in two's complement
        self.frame: bytes | None = None  # four bytes that it sends instead, as a DHT11 would, with their sum
        self._now_ms = now_ms
        self._busy_until_ms = now_ms() + SHORTEST_MS

    def read(self) -> bytes:
        if self._now_ms() < self._busy_until_ms:
            raise OSError(ETIMEDOUT)
        self._busy_until_ms = self._now_ms() + SHORTEST_MS
        if self.is_complement:
            temperature = self.temperature & 0xFFFF
        else:
            temperature = abs(self.temperature) | (0x8000 if self.temperature < 0 else 0)
        answer = bytearray(self.frame or self.humidity.to_bytes(2, "big") + temperature.to_bytes(2, "big"))
        answer.append(sum(answer) & 0xFF)
        if self.flipped_bit is not None:
            answer[self.flipped_bit // 8] ^= 1 << self.flipped_bit % 8
        return bytes(answer)
