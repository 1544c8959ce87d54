"""What each driver makes of its sensor on a simulated board. Prints, as JSON, what the scenario named returns."""

import json
import sys

import machine

from device.config import Config
from device.sensors.probe import Probe
from tools.lab.sim.chips.bme280 import Bme280
from tools.lab.sim.chips.dht22 import Dht22
from tools.lab.sim.chips.ds18b20 import Ds18b20, ShortedWire
from tools.lab.sim.chips.max31855 import Max31855
from tools.lab.sim.chips.sht31 import Sht31

BME280 = {"kind": "bme280", "address": 0x76, "bus": 0, "scl": 22, "sda": 21}
SHT31 = {"kind": "sht31", "address": 0x44, "bus": 0, "scl": 22, "sda": 21}
MAX31855 = {"kind": "max31855", "bus": 1, "sck": 14, "mosi": 13, "miso": 12, "cs": 15}
WIRE = 4
SERIALS = (b"\xff\x64\x1e\x05\x16\x04", b"\x00\x64\x1e\x05\x16\x04", b"\x21\x85\x13\x19\x01\x00")
ABSENT = ["28" + 14 * "0", None]
CALIBRATION = (  # temperature and pressure: the example of Bosch's BMP280 datasheet, section 3.12
    (27504, 26435, -1000),
    (36477, -10685, 3024, 2855, 140, -7, 15500, -14600, 6000),
    (75, 370, 0, 313, 50, 30),
)
RAW = (519888, 415148, 30281)


class Clock:
    """The simulated moment."""

    ms = 0


def now_ms() -> int:
    return Clock.ms


def probe(entry: dict) -> Probe:
    """A sensor as the configuration has it."""
    keys = {
        "client_id": "garage-1",
        "topic": "telemetry/garage",
        "port": {"kind": "tcp", "host": "gateway", "port": 1883},
        "flash": {"path": "flash", "sector_count": 6},
        "interval_ms": 5000,
        "clock": "none",
        "sensors": [entry],
        "readings_limit": 0,
        "journal": None,
    }
    return Probe(Config(keys).sensors[0])


def measure(sensor: Probe, shorter_ms: int = 0) -> list:
    """One sample, with the wait that the driver asks for."""
    Clock.ms += 5000
    Clock.ms += sensor.start() - shorter_ms
    return sensor.sample()


def new_bme280() -> Bme280:
    return Bme280(now_ms, *CALIBRATION, RAW)


def bme280_measures() -> list:
    machine.connect_i2c(new_bme280(), 0, 0x76)
    return measure(probe(BME280))


def bme280_with_negative_calibration() -> list:
    chip = Bme280(now_ms, CALIBRATION[0], CALIBRATION[1], (75, 370, 0, -313, -50, -30), (409888, 415148, 26000))
    machine.connect_i2c(chip, 0, 0x76)
    return measure(probe(BME280))


def bme280_comes_and_goes() -> list:
    sensor = probe(BME280)
    outcomes = [measure(sensor)]
    machine.connect_i2c(new_bme280(), 0, 0x76)
    outcomes.append(measure(sensor))
    machine.disconnect_i2c(0, 0x76)
    outcomes.append(measure(sensor))
    machine.connect_i2c(new_bme280(), 0, 0x76)
    outcomes.append(measure(sensor))
    return outcomes


def bme280_loses_power_while_it_measures() -> list:
    chip = new_bme280()
    machine.connect_i2c(chip, 0, 0x76)
    sensor = probe(BME280)
    Clock.ms += sensor.start()
    chip.power_on()
    return [sensor.sample(), measure(sensor)]


def bme280_read_too_early() -> list:
    machine.connect_i2c(new_bme280(), 0, 0x76)
    sensor = probe(BME280)
    return [measure(sensor, shorter_ms=1), measure(sensor)]


def bme280_is_another_chip() -> list:
    machine.connect_i2c(Bme280(now_ms, *CALIBRATION, RAW, chip_id=0x58), 0, 0x76)
    return measure(probe(BME280))


def sht31_measures() -> list:
    machine.connect_i2c(Sht31(now_ms, 0x6666, 0x8000), 0, 0x44)
    return measure(probe(SHT31))


def sht31_fails_and_recovers() -> list:
    chip = Sht31(now_ms, 0x6666, 0x8000)
    machine.connect_i2c(chip, 0, 0x44)
    sensor = probe(SHT31)
    outcomes = [measure(sensor, shorter_ms=2)]
    for chip.flipped_bit in (0, 23, 24, 47, None):
        outcomes.append(measure(sensor))
    return outcomes


def ds18b20_measures() -> list:
    outcomes = []
    for sixteenths in (25 * 16 + 1, -10 * 16 - 2, 125 * 16, -55 * 16, 0, 85 * 16 + 1):
        machine.disconnect_all()
        machine.connect_wire(Ds18b20(now_ms, SERIALS[0], sixteenths), WIRE)
        outcomes += measure(probe({"kind": "ds18b20", "pin": WIRE, "rom": None}))
    return outcomes


def ds18b20_among_others() -> list:
    chips = [Ds18b20(now_ms, serial, 16 * (20 + number)) for number, serial in enumerate(SERIALS)]
    for chip in chips:
        machine.connect_wire(chip, WIRE)
    roms = ["".join([f"{byte:02x}" for byte in chip.rom]) for chip in chips]
    outcomes = [measure(probe({"kind": "ds18b20", "pin": WIRE, "rom": rom})) for rom in roms + ABSENT]
    return [roms, outcomes]


def ds18b20_fails_and_recovers() -> list:
    chip = Ds18b20(now_ms, SERIALS[0], 320)
    sensor = probe({"kind": "ds18b20", "pin": WIRE, "rom": None})
    outcomes = [measure(sensor)]  # nothing is on the wire
    machine.connect_wire(chip, WIRE)
    outcomes.append(measure(sensor))
    for chip.flipped_bit in (0, 71):
        outcomes.append(measure(sensor))
    chip.flipped_bit = None
    outcomes.append(measure(sensor))
    Clock.ms += sensor.start()
    chip.power_on()
    outcomes.append(sensor.sample())
    sensor.start()
    machine.connect_wire(ShortedWire(), WIRE)
    outcomes.append(sensor.sample())
    outcomes.append(measure(sensor))
    machine.disconnect_wire(WIRE)
    outcomes.append(measure(sensor))
    machine.connect_wire(chip, WIRE)
    outcomes.append(measure(sensor))
    return outcomes


def dht22_measures_and_fails() -> list:
    sensor = probe({"kind": "dht22", "pin": WIRE})
    outcomes = [measure(sensor)]  # nothing is there
    chip = Dht22(now_ms, 652, 351)
    machine.connect_wire(chip, WIRE)
    outcomes.append(measure(sensor))
    outcomes.append(sensor.sample())  # at once again
    chip.temperature = -101
    for chip.flipped_bit in (17, None):
        outcomes.append(measure(sensor))
    return outcomes


def max31855_tells() -> list:
    chip = Max31855(0)
    machine.connect(chip, spi=1, cs=15)
    sensor = probe(MAX31855)
    outcomes = []
    # Tables 4 and 5 of the datasheet: 1600 and 127, 100.75 and 25, -0.25 and -0.0625, -250 and -55 degrees.
    for thermocouple, junction in ((0x1900, 0x7F0), (0x193, 0x190), (0x3FFF, 0xFFF), (0x3C18, 0xC90)):
        chip.word = thermocouple << 18 | junction << 4
        outcomes.append(measure(sensor))
    for chip.word in (0x0001_1901, 0x0001_1902, 0x0001_1904, 0x0001_1907, 0, 0xFFFF_FFFF, None, 0x0190_1900):
        outcomes.append(measure(sensor))
    return outcomes


def adc_measures() -> list:
    sensor = probe({"kind": "adc", "pin": 26, "full_scale_mv": 6600, "name": "battery"})
    outcomes = []
    for volts in (0, 1.0, 2.05, 3.3):
        machine.apply_voltage(26, volts)
        outcomes += measure(sensor)
    return outcomes


def pulses_are_counted() -> list:
    falling = probe({"kind": "pulse", "pin": 5, "edge": "falling"})
    rising = probe({"kind": "pulse", "pin": 6, "edge": "rising", "name": "rain"})
    machine.drive(6, 0)
    outcomes = [measure(falling), measure(rising)]
    for _ in range(3):
        for pin, level in ((5, 0), (6, 1), (5, 1), (6, 0)):
            machine.drive(pin, level)
    outcomes.append(measure(falling))
    outcomes.append(measure(rising))
    return outcomes


print(json.dumps(globals()[sys.argv[1]]()))
