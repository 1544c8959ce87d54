"""The BME280's integer arithmetic against the floating-point formulas of its datasheet (section 8.1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device.sensors.bme280 import compensate_humidity, compensate_pressure, fine_temperature, unpack_humidity

TEMPERATURE = (27504, 26435, -1000)
PRESSURE = (36477, -10685, 3024, 2855, 140, -7, 15500, -14600, 6000)
HUMIDITY = (75, 370, 0, 313, 50, 30)
RAW_T = st.integers(250_000, 750_000)  # -46 to 97 degrees with this calibration


def float_temperature(raw: int) -> float:
    """In 1/5120 degree."""
    t1, t2, t3 = TEMPERATURE
    return (raw / 16384 - t1 / 1024) * t2 + (raw / 131072 - t1 / 8192) ** 2 * t3


def float_pressure(raw: int, fine: float) -> float:
    p1, p2, p3, p4, p5, p6, p7, p8, p9 = PRESSURE
    offset = fine / 2 - 64000
    zero = (offset * offset * p6 / 32768 + offset * p5 * 2) / 4 + p4 * 65536
    scale = (1 + (p3 * offset * offset / 524288 + p2 * offset) / 524288 / 32768) * p1
    pressure = (1048576 - raw - zero / 4096) * 6250 / scale
    return pressure + (p9 * pressure * pressure / 2147483648 + pressure * p8 / 32768 + p7) / 16


def float_humidity(raw: int, fine: float) -> float:
    h1, h2, h3, h4, h5, h6 = HUMIDITY
    offset = fine - 76800
    humidity = (raw - (h4 * 64 + h5 / 16384 * offset)) * (
        h2 / 65536 * (1 + h6 / 67108864 * offset * (1 + h3 / 67108864 * offset))
    )
    return max(0.0, min(100.0, humidity * (1 - h1 * humidity / 524288)))


def test_worked_example_of_the_datasheet() -> None:
    """BMP280, section 3.12, whose formulas for temperature and pressure are the same.

    The page prints 25767236, 0.01 Pa more than its own integer formula gives, and 100653.27 Pa.
    """
    fine = fine_temperature(519888, TEMPERATURE)
    assert fine == 128422
    assert compensate_pressure(415148, fine, PRESSURE) == 25767233
    assert float_pressure(415148, float_temperature(519888)) == pytest.approx(100653.27, abs=0.005)


@given(RAW_T, st.integers(200_000, 700_000), st.integers(0, 65535))
def test_integers_give_what_the_floating_point_formulas_give(raw_t: int, raw_p: int, raw_h: int) -> None:
    fine = fine_temperature(raw_t, TEMPERATURE)
    exact = float_temperature(raw_t)
    assert abs(fine - exact) < 51.2  # a hundredth of a degree
    assert abs(compensate_pressure(raw_p, fine, PRESSURE) / 256 - float_pressure(raw_p, fine)) < 1
    assert abs(compensate_humidity(raw_h, fine, HUMIDITY) / 1024 - float_humidity(raw_h, fine)) < 0.05


def test_shared_byte_of_the_humidity_calibration_is_split() -> None:
    registers = bytearray(b"\x72\x01\x00\x13\x29\x03\x1e")
    assert unpack_humidity(bytearray([75]), registers) == (75, 370, 0, 0x139, 0x32, 30)
    registers = bytearray(b"\x72\x01\x00\xec\xe7\xfc\xe2")
    assert unpack_humidity(bytearray([75]), registers) == (75, 370, 0, -313, -50, -30)
