"""BME280 on I2C (Bosch BST-BME280-DS002): temperature, humidity and pressure."""

import struct

from device.sensors import buses
from device.sensors.driver import Driver, SensorFailed

CHIP_ID = 0x60
ID, CTRL_HUM, STATUS, CTRL_MEAS = 0xD0, 0xF2, 0xF3, 0xF4
CALIBRATION_TP, CALIBRATION_H1, CALIBRATION_H = 0x88, 0xA1, 0xE1
OVERSAMPLE_ONCE_FORCED = 1 << 5 | 1 << 2 | 1
MEASURING, COPYING = 8, 1  # bits of STATUS: it measures; it copies its calibration to the registers, after a reset
MEASURE_MS = 10  # a measurement takes 9.3 ms at most (section 9.1)
NOT_MEASURED = 0x80000  # the value of a skipped measurement, in 20 bits; humidity has the upper 16 of them
UNPROGRAMMED = 0xFFFF
HUMIDITY_MAX = 100 << 22  # 100 %, before the last shift of the calculation


class Bme280(Driver):
    """A chip at the I2C address 0x76 or 0x77. It sleeps between samples."""

    METRICS = ("temperature", "humidity", "pressure")
    RANGES = {"temperature": (-40, 85), "humidity": (0, 100), "pressure": (30_000, 110_000)}  # tables 1 to 4

    @staticmethod
    def read(section) -> tuple:
        return buses.read_i2c(section), section.address("address", 0x76, 0x77)

    def __init__(self, wiring: tuple, address: int) -> None:
        self._bus = buses.i2c(wiring)
        self._address = address
        identity = self._read(ID, 1)[0]
        if identity != CHIP_ID:
            raise SensorFailed(f"chip {identity:#x}, expected a BME280, {CHIP_ID:#x}")
        if self._read(STATUS, 1)[0] & COPYING:
            raise SensorFailed("it is starting")
        calibration = struct.unpack("<HhhHhhhhhhhh", self._read(CALIBRATION_TP, 24))
        self._temperature, self._pressure = calibration[:3], calibration[3:]
        self._humidity = unpack_humidity(self._read(CALIBRATION_H1, 1), self._read(CALIBRATION_H, 7))
        # The bus has no checksum. A chip without its calibration reads as zeros, a line without a chip as ones.
        if not (any(self._temperature) and any(self._pressure) and any(self._humidity)):
            raise SensorFailed("its calibration is zero")
        if calibration[0] == calibration[3] == UNPROGRAMMED:
            raise SensorFailed("its calibration is missing")

    def start(self) -> int:
        """Begins a measurement; CTRL_HUM takes effect with the next write to CTRL_MEAS (section 5.4.3)."""
        self._bus.writeto_mem(self._address, CTRL_HUM, b"\x01")
        self._bus.writeto_mem(self._address, CTRL_MEAS, bytes([OVERSAMPLE_ONCE_FORCED]))
        return MEASURE_MS

    def sample(self) -> list:
        data = self._read(STATUS, 12)  # to the end of humidity
        pressure = data[4] << 12 | data[5] << 4 | data[6] >> 4
        temperature = data[7] << 12 | data[8] << 4 | data[9] >> 4
        humidity = data[10] << 8 | data[11]
        if data[0] & MEASURING or NOT_MEASURED in (pressure, temperature, humidity << 4):
            raise SensorFailed("it has not measured")
        fine = fine_temperature(temperature, self._temperature)
        return [
            ("temperature", "Cel", (fine * 5 + 128 >> 8) / 100),
            ("humidity", "%RH", round(compensate_humidity(humidity, fine, self._humidity) / 1024, 2)),
            ("pressure", "Pa", round(compensate_pressure(pressure, fine, self._pressure) / 256, 1)),
        ]

    def _read(self, register: int, length: int) -> bytearray:
        """Reads registers twice, because nothing else would show a wrong bit. They change only while it measures."""
        content, again = bytearray(length), bytearray(length)
        self._bus.readfrom_mem_into(self._address, register, content)
        self._bus.readfrom_mem_into(self._address, register, again)
        if content != again:
            raise SensorFailed("two readings of a register differ")
        return content


def unpack_humidity(h1: bytearray, others: bytearray) -> tuple:
    """Returns the calibration values H1 to H6; H4 and H5 have 12 bits each and share a byte (table 16)."""
    h2, h3, h4_high, nibbles, h5_high, h6 = struct.unpack("<hBbBbb", others)
    return h1[0], h2, h3, h4_high << 4 | nibbles & 0xF, h5_high << 4 | nibbles >> 4, h6


# The integer formulas of section 4.2.3. They were written for 32 and 64 bits; Python's integers are large enough.


def fine_temperature(raw: int, calibration: tuple) -> int:
    """Returns the temperature in 1/5120 degree Celsius, the unit that the other two formulas need."""
    t1, t2, t3 = calibration
    rough = ((raw >> 3) - (t1 << 1)) * t2 >> 11
    offset = (raw >> 4) - t1
    return rough + ((offset * offset >> 12) * t3 >> 14)


def compensate_pressure(raw: int, fine: int, calibration: tuple) -> int:
    """Returns the pressure in 1/256 Pa."""
    p1, p2, p3, p4, p5, p6, p7, p8, p9 = calibration
    offset = fine - 128_000
    scale = ((1 << 47) + (offset * offset * p3 >> 8) + (offset * p2 << 12)) * p1 >> 33
    if scale == 0:
        raise SensorFailed("its calibration is zero")
    zero = offset * offset * p6 + (offset * p5 << 17) + (p4 << 35)
    pressure = ((1_048_576 - raw << 31) - zero) * 3125 // scale
    square = p9 * (pressure >> 13) * (pressure >> 13) >> 25
    return (pressure + square + (p8 * pressure >> 19) >> 8) + (p7 << 4)


def compensate_humidity(raw: int, fine: int, calibration: tuple) -> int:
    """Returns the relative humidity in 1/1024 %, from 0 to 100 %."""
    h1, h2, h3, h4, h5, h6 = calibration
    offset = fine - 76_800
    slope = (offset * h6 >> 10) * ((offset * h3 >> 11) + 32_768) >> 10
    humidity = ((raw << 14) - (h4 << 20) - h5 * offset + 16_384 >> 15) * ((slope + 2_097_152) * h2 + 8_192 >> 14)
    humidity -= ((humidity >> 15) * (humidity >> 15) >> 7) * h1 >> 4
    return max(0, min(humidity, HUMIDITY_MAX)) >> 12
