"""Every driver against its simulated sensor, on the real MicroPython and on CPython."""

from typing import Any

import pytest

from tests.device.sensors.simulated_board import run_on_board
from tools.lab.micropython import MicroPython

AIR = [["bme280.temperature", "Cel", 25.08], ["bme280.humidity", "%RH", 57.81], ["bme280.pressure", "Pa", 100653.3]]
ROOM = [["sht31.temperature", "Cel", 25.0], ["sht31.humidity", "%RH", 50.0]]


@pytest.fixture(params=["MicroPython", "CPython"])
def vm(request: pytest.FixtureRequest, micropython: MicroPython) -> MicroPython | None:
    return micropython if request.param == "MicroPython" else None


def outcome(vm: MicroPython | None, scenario: str) -> Any:
    return run_on_board(vm, "sensors", scenario)


def reason(samples: list[Any]) -> str:
    """Returns the reason in the one record that stands for absent readings."""
    ((name, unit, text),) = samples
    assert name.endswith(".error") and unit is None
    assert isinstance(text, str)
    return text


def test_bme280_tells_what_the_datasheets_example_gives(vm: MicroPython | None) -> None:
    assert outcome(vm, "bme280_measures") == AIR


def test_bme280_that_comes_and_goes_is_found_again(vm: MicroPython | None) -> None:
    absent, found, lost, back = outcome(vm, "bme280_comes_and_goes")
    assert reason(absent).startswith("OSError") and reason(lost).startswith("OSError")
    assert found == back == AIR


@pytest.mark.parametrize("scenario", ["bme280_loses_power_while_it_measures", "bme280_read_too_early"])
def test_bme280_without_a_measurement_has_no_value(scenario: str, vm: MicroPython | None) -> None:
    without, then = outcome(vm, scenario)
    assert reason(without) == "it has not measured"
    assert then == AIR


def test_bmp280_in_its_place_is_told(vm: MicroPython | None) -> None:
    assert reason(outcome(vm, "bme280_is_another_chip")) == "chip 0x58, expected a BME280, 0x60"


def test_sht31_measures(vm: MicroPython | None) -> None:
    assert outcome(vm, "sht31_measures") == ROOM


def test_sht31_that_is_busy_or_disturbed_has_no_value(vm: MicroPython | None) -> None:
    busy, *disturbed, then = outcome(vm, "sht31_fails_and_recovers")
    assert reason(busy).startswith("OSError")
    assert [reason(samples) for samples in disturbed] == 4 * ["wrong checksum"]
    assert then == ROOM


def test_ds18b20_measures_over_its_range(vm: MicroPython | None) -> None:
    values = [value for _, _, value in outcome(vm, "ds18b20_measures")]
    assert values == [25.0625, -10.125, 125, -55, 0, 85.0625]


def test_ds18b20_is_told_from_others_by_its_rom_code(vm: MicroPython | None) -> None:
    roms, (*measured, absent, without) = outcome(vm, "ds18b20_among_others")
    assert [samples[0][2] for samples in measured] == [20, 21, 22]
    listed = ", ".join(sorted(roms))
    assert reason(absent) == f"not on the wire; there is {listed}"
    assert reason(without) == f"rom must be one of {listed}"


def test_ds18b20_that_fails_has_no_value_and_recovers(vm: MicroPython | None) -> None:
    nothing, first, *failed, gone, third = outcome(vm, "ds18b20_fails_and_recovers")
    *flipped, second, no_power, shorted, still_shorted = failed
    assert first == second == third == [["ds18b20.temperature", "Cel", 20]]
    assert reason(nothing) == reason(gone) == "nothing on the wire"
    assert [reason(samples) for samples in flipped] == 2 * ["Exception CRC error"]
    assert reason(no_power) == "it lost its power and has not measured"
    assert reason(shorted) == reason(still_shorted) == "the wire is shorted"


def test_dht22_measures_and_recovers(vm: MicroPython | None) -> None:
    absent, first, too_soon, flipped, second = outcome(vm, "dht22_measures_and_fails")
    assert first == [["dht22.temperature", "Cel", 35.1], ["dht22.humidity", "%RH", 65.2]]
    assert second == [["dht22.temperature", "Cel", -10.1], ["dht22.humidity", "%RH", 65.2]]
    assert reason(absent).startswith("OSError") and reason(too_soon).startswith("OSError")
    assert reason(flipped) == "Exception checksum error"


def test_bme280_with_a_wrong_calibration_has_no_value(vm: MicroPython | None) -> None:
    (starting, then, blank), disturbed = outcome(vm, "bme280_with_wrong_calibration")
    assert reason(starting) == "it is starting"
    assert then == AIR
    assert reason(blank) == "its calibration is zero"
    failed = [samples for samples in disturbed if samples != AIR]
    assert {reason(samples) for samples in failed} == {"two readings of a register differ"}
    assert len(failed) == 12  # each register is read twice: identity, status, calibration in three parts, data


def test_dht22_tells_no_value_that_the_chip_cannot_measure(vm: MicroPython | None) -> None:
    *measured, dht11, zeros, ones, minus_one, minus_zero = outcome(vm, "dht22_of_other_makers")
    assert [samples[0][2] for samples in [*measured, minus_one, minus_zero]] == [-18, -0.1, -40, -40, 80, -0.1, 0]
    assert reason(dht11) == "temperature is 614.4, which is not within -40 to 80"
    assert reason(zeros) == "all bits are zero"
    assert reason(ones) == "humidity is 6553.5, which is not within 0 to 100"


def test_values_beyond_the_datasheet_are_errors_although_the_checksum_is_right(vm: MicroPython | None) -> None:
    assert [reason(samples) for samples in outcome(vm, "values_beyond_the_datasheet")] == [
        "temperature is -45.0, which is not within -40 to 125",
        "temperature is 127.9375, which is not within -55 to 125",
        "temperature is -127.0, which is not within -55 to 125",
        "temperature is 2047.75, which is not within -270 to 1800",
        "temperature is -2048.0, which is not within -270 to 1800",
        "two readings of one conversion differ",
    ]


def test_adc_of_an_esp32_goes_by_its_calibration_and_tells_what_is_too_high(vm: MicroPython | None) -> None:
    *measured, too_high = outcome(vm, "adc_of_an_esp32_measures")
    assert [samples[0][2] for samples in measured] == pytest.approx([0, 0.1, 2, 5.8], abs=0.002)
    assert reason(too_high) == "the voltage is higher than the converter can measure"


def test_pulses_of_a_bouncing_contact_count_once(vm: MicroPython | None) -> None:
    outcomes = [samples[0][2] for samples in outcome(vm, "pulses_of_a_bouncing_contact")]
    assert outcomes == [0, 7, 0, 5]


def test_pulses_that_came_while_the_board_was_busy_are_counted_or_told_as_missed(vm: MicroPython | None) -> None:
    *before, counted, clean = outcome(vm, "pulses_that_a_busy_board_cannot_take")
    assert before == [[["pulse.count", "count", 0]], [["rain.count", "count", 0], ["rain.missed", "count", 0]]]
    assert counted == [["pulse.count", "count", 40]]
    (_, _, count), (name, unit, missed) = clean
    assert (name, unit) == ("rain.missed", "count")
    assert 20 <= count <= 24
    assert missed == 2 * 20 - 8 - 1


def test_max31855_tells_temperatures_and_faults(vm: MicroPython | None) -> None:
    outcomes = outcome(vm, "max31855_tells")
    measured = [[value for _, _, value in samples] for samples in (*outcomes[:4], outcomes[-1])]
    assert measured == [[1600, 127], [100.75, 25], [-0.25, -0.0625], [-250, -55], [25, 25]]
    assert [reason(samples) for samples in outcomes[4:-1]] == [
        "thermocouple open",
        "thermocouple shorted to ground",
        "thermocouple shorted to the supply",
        "thermocouple open and shorted to ground and shorted to the supply",
        *3 * ["no answer"],
    ]


def test_adc_averages_the_noise_away(vm: MicroPython | None) -> None:
    samples = outcome(vm, "adc_measures")
    assert {(name, unit) for name, unit, _ in samples} == {("battery.voltage", "V")}
    assert [value for _, _, value in samples] == pytest.approx([0, 2, 4.1, 6.6], abs=0.01)


def test_pulses_are_counted_in_interrupts_that_have_no_memory(vm: MicroPython | None) -> None:
    before, rain_before, after, rain_after = outcome(vm, "pulses_are_counted")
    assert (before, after) == ([["pulse.count", "count", 0]], [["pulse.count", "count", 3]])
    assert (rain_before, rain_after) == ([["rain.count", "count", 0]], [["rain.count", "count", 3]])
