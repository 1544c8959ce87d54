"""A Bosch BME280 on I2C (datasheet BST-BME280-DS002): its registers, and a measurement that takes its time."""

import struct

CHIP_ID = 0x60
START_UP_MS = 2
MEASURE_MS = 10  # 9.3 ms at most with every oversampling at 1 (section 9.1)
RESET, CTRL_HUM, STATUS, CTRL_MEAS, DATA = 0xE0, 0xF2, 0xF3, 0xF4, 0xF7
FORCED = (1, 2)
NOT_MEASURED = b"\x80\x00\x00\x80\x00\x00\x80\x00"  # of pressure, temperature and humidity (table 18)


def _nothing(register: int, length: int) -> int | None:
    return None


class Bme280:
    """The chip with a calibration: `temperature` T1 to T3, `pressure` P1 to P9, `humidity` H1 to H6.

    Args:
        now_ms: tells the moment.
        raw: what its converters give: (temperature, pressure, humidity).
        chip_id: 0x58 for a BMP280, which looks the same and measures no humidity.

    Faults: for 2 ms after power-on (start-up time, table 1) it copies its calibration, bit 0 of STATUS is set and the
    registers read as zero; `is_blank`: they stay so. `flip(register, length)` is called for each read and returns the
    number of a bit that the bus changes in it, or None.
    """

    is_blank = False

    def __init__(
        self, now_ms, temperature: tuple, pressure: tuple, humidity: tuple, raw: tuple, chip_id: int = CHIP_ID
    ) -> None:
        self.raw = raw
        self.flip = _nothing
        self._chip_id = chip_id
        self._now_ms = now_ms
        self._calibration = (temperature, pressure, humidity)
        self.power_on()

    def power_on(self) -> None:
        """All registers are as after a power cut or a reset."""
        self._registers = bytearray(256)
        self._pointer = 0
        self._oversample_humidity = 0  # what CTRL_HUM held at the last write to CTRL_MEAS (section 5.4.3)
        self._ready_ms: int | None = None
        self._registers[0xD0] = self._chip_id
        self._registers[DATA : DATA + 8] = NOT_MEASURED
        self._copied_ms: int | None = self._now_ms() + START_UP_MS

    def _copy(self) -> None:
        """The calibration comes from the chip's memory to its registers."""
        if self.is_blank or self._copied_ms is None or self._now_ms() < self._copied_ms:
            return
        self._copied_ms = None
        temperature, pressure, (h1, h2, h3, h4, h5, h6) = self._calibration
        struct.pack_into("<HhhHhhhhhhhh", self._registers, 0x88, *temperature, *pressure)
        self._registers[0xA1] = h1
        nibbles = (h4 >> 4 & 0xFF, (h4 & 0xF) | (h5 & 0xF) << 4, h5 >> 4 & 0xFF)
        struct.pack_into("<hBBBBb", self._registers, 0xE1, h2, h3, *nibbles, h6)

    def write(self, content: bytes) -> None:
        """A register's number, and then pairs of content and the next one's number (section 6.2.1)."""
        self._pointer = content[0]
        for place in range(1, len(content), 2):
            self._store(self._pointer, content[place])
            if place + 1 < len(content):
                self._pointer = content[place + 1]

    def read(self, length: int) -> bytes:
        self._copy()
        self._finish()
        is_copying = self._copied_ms is not None and not self.is_blank
        self._registers[STATUS] = (0 if self._ready_ms is None else 8) | is_copying
        answer = self._registers[self._pointer : self._pointer + length]
        bit = self.flip(self._pointer, length)
        if bit is not None:
            answer[bit // 8] ^= 1 << bit % 8
        return bytes(answer)

    def _store(self, register: int, byte: int) -> None:
        if register == RESET and byte == 0xB6:
            self.power_on()
        elif register in (CTRL_HUM, CTRL_MEAS, 0xF5):
            self._registers[register] = byte
            if register == CTRL_MEAS:
                self._oversample_humidity = self._registers[CTRL_HUM] & 7
                if byte & 3 in FORCED:
                    self._ready_ms = self._now_ms() + MEASURE_MS

    def _finish(self) -> None:
        if self._ready_ms is None or self._now_ms() < self._ready_ms:
            return
        self._ready_ms = None
        control = self._registers[CTRL_MEAS]
        temperature, pressure, humidity = self.raw
        data = bytearray(NOT_MEASURED)
        if control >> 2 & 7:
            data[0:3] = (pressure << 4).to_bytes(3, "big")
        if control >> 5:
            data[3:6] = (temperature << 4).to_bytes(3, "big")
        if self._oversample_humidity:
            data[6:8] = humidity.to_bytes(2, "big")
        self._registers[DATA : DATA + 8] = data
        self._registers[CTRL_MEAS] = control & 0xFC  # back to sleep
