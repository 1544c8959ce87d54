"""A Sensirion SHT31 on I2C (datasheet SHT3x-DIS): single measurements without clock stretching."""

ENODEV = 19
SINGLE_SHOT = b"\x24\x00"  # high repeatability, no clock stretching
MEASURE_MS = 15


class Sht31:
    """The chip that measures the ticks `temperature` and `humidity`, of 65535.

    While it measures, and when there is nothing to read, it does not acknowledge. `now_ms` returns the time."""

    def __init__(self, now_ms, temperature: int, humidity: int) -> None:
        self.temperature = temperature
        self.humidity = humidity
        self.flipped_bit: int | None = None  # of the six bytes that are read, on the wire
        self.frame: bytes | None = None  # six bytes that are read instead
        self._now_ms = now_ms
        self._ready_ms: int | None = None

    def write(self, content: bytes) -> None:
        if self._is_measuring() or content != SINGLE_SHOT:
            raise OSError(ENODEV)
        self._ready_ms = self._now_ms() + MEASURE_MS

    def read(self, length: int) -> bytes:
        if self._ready_ms is None or self._is_measuring():
            raise OSError(ENODEV)
        self._ready_ms = None
        words = [self.temperature.to_bytes(2, "big"), self.humidity.to_bytes(2, "big")]
        answer = bytearray(b"".join([word + bytes([crc8(word)]) for word in words]))
        if self.flipped_bit is not None:
            answer[self.flipped_bit // 8] ^= 1 << self.flipped_bit % 8
        return bytes(self.frame or answer[:length])

    def _is_measuring(self) -> bool:
        return self._ready_ms is not None and self._now_ms() < self._ready_ms


def crc8(word: bytes) -> int:
    """The polynomial x⁸ + x⁵ + x⁴ + 1 from 0xFF, most significant bit first: 0xBEEF gives 0x92 (section 4.12)."""
    crc = 0xFF
    for byte in word:
        crc ^= byte
        for _ in range(8):
            crc = (crc << 1 ^ 0x31) & 0xFF if crc & 0x80 else crc << 1
    return crc
