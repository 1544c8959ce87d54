"""What each driver makes of its sensor on a simulated board. Prints, as JSON, what the scenario named returns."""

import json
import sys

import machine

from device.sensors.probe import Probe
from tools.lab.sim.chips.bme280 import Bme280
from tools.lab.sim.chips.dht22 import Dht22
from tools.lab.sim.chips.ds18b20 import Ds18b20, ShortedWire
from tools.lab.sim.chips.max31855 import Max31855
from tools.lab.sim.chips.sht31 import Sht31
from tools.lab.sim.probes import probe_of

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


def measure(sensor: Probe, shorter_ms: int = 0) -> list:
    """One sample, with the wait that the driver asks for."""
    Clock.ms += 5000
    Clock.ms += sensor.start() - shorter_ms
    return sensor.sample()


def new_bme280() -> Bme280:
    return Bme280(now_ms, *CALIBRATION, RAW)


def bme280_measures() -> list:
    machine.connect_i2c(new_bme280(), 0, 0x76)
    return measure(probe_of(BME280))


def bme280_with_negative_calibration() -> list:
    chip = Bme280(now_ms, CALIBRATION[0], CALIBRATION[1], (75, 370, 0, -313, -50, -30), (409888, 415148, 26000))
    machine.connect_i2c(chip, 0, 0x76)
    return measure(probe_of(BME280))


def bme280_comes_and_goes() -> list:
    sensor = probe_of(BME280)
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
    sensor = probe_of(BME280)
    Clock.ms += 5000
    Clock.ms += sensor.start()
    chip.power_on()
    return [sensor.sample(), measure(sensor)]


def bme280_read_too_early() -> list:
    machine.connect_i2c(new_bme280(), 0, 0x76)
    sensor = probe_of(BME280)
    return [measure(sensor, shorter_ms=1), measure(sensor)]


def bme280_is_another_chip() -> list:
    machine.connect_i2c(Bme280(now_ms, *CALIBRATION, RAW, chip_id=0x58), 0, 0x76)
    return measure(probe_of(BME280))


def sht31_measures() -> list:
    machine.connect_i2c(Sht31(now_ms, 0x6666, 0x8000), 0, 0x44)
    return measure(probe_of(SHT31))


def sht31_fails_and_recovers() -> list:
    chip = Sht31(now_ms, 0x6666, 0x8000)
    machine.connect_i2c(chip, 0, 0x44)
    sensor = probe_of(SHT31)
    outcomes = [measure(sensor, shorter_ms=2)]
    for chip.flipped_bit in (0, 23, 24, 47, None):
        outcomes.append(measure(sensor))
    return outcomes


def ds18b20_measures() -> list:
    outcomes = []
    for sixteenths in (25 * 16 + 1, -10 * 16 - 2, 125 * 16, -55 * 16, 0, 85 * 16 + 1):
        machine.disconnect_all()
        machine.connect_wire(Ds18b20(now_ms, SERIALS[0], sixteenths), WIRE)
        outcomes += measure(probe_of({"kind": "ds18b20", "pin": WIRE, "rom": None}))
    return outcomes


def ds18b20_among_others() -> list:
    chips = [Ds18b20(now_ms, serial, 16 * (20 + number)) for number, serial in enumerate(SERIALS)]
    for chip in chips:
        machine.connect_wire(chip, WIRE)
    roms = ["".join([f"{byte:02x}" for byte in chip.rom]) for chip in chips]
    outcomes = [measure(probe_of({"kind": "ds18b20", "pin": WIRE, "rom": rom})) for rom in roms + ABSENT]
    return [roms, outcomes]


def ds18b20_fails_and_recovers() -> list:
    chip = Ds18b20(now_ms, SERIALS[0], 320)
    sensor = probe_of({"kind": "ds18b20", "pin": WIRE, "rom": None})
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


def bme280_with_wrong_calibration() -> list:
    """While it starts, with registers that stay zero, and with one bit that the bus changes in each of its reads."""
    chip = new_bme280()
    machine.connect_i2c(chip, 0, 0x76)
    sensor = probe_of(BME280)
    sensor.start()
    outcomes = [sensor.sample(), measure(sensor)]
    chip.is_blank = True
    chip.power_on()
    sensor = probe_of(BME280)
    outcomes.append(measure(sensor))
    chip.is_blank = False
    reads = [0]

    def flip(register: int, length: int) -> int | None:
        reads[0] += 1
        return 7 if reads[0] == 0 else None

    chip.flip = flip
    disturbed = []
    for number in range(1, 16):
        reads[0] = -number
        disturbed.append(measure(probe_of(BME280)))
    return [outcomes, disturbed]


def dht22_of_other_makers() -> list:
    """Below zero in two's complement, a DHT11, frames of one bit each, and the coldest of both kinds."""
    chip = Dht22(now_ms, 652, -180)
    machine.connect_wire(chip, WIRE)
    sensor = probe_of({"kind": "dht22", "pin": WIRE})
    outcomes = []
    for chip.is_complement, chip.temperature in ((True, -180), (True, -1), (True, -400), (False, -400), (False, 800)):
        outcomes.append(measure(sensor))
    for chip.frame in (b"\x28\x00\x18\x00", bytes(4), b"\xff" * 4, b"\x02\x8c\xff\xff", b"\x02\x8c\x80\x00"):
        outcomes.append(measure(sensor))
    return outcomes


def values_beyond_the_datasheet() -> list:
    sht31, ds18b20, max31855 = Sht31(now_ms, 0, 0x8000), Ds18b20(now_ms, SERIALS[0], 320), Max31855(0)
    machine.connect_i2c(sht31, 0, 0x44)
    machine.connect_wire(ds18b20, WIRE)
    machine.connect(max31855, spi=1, cs=15)
    outcomes = [measure(probe_of(SHT31))]
    for content in (b"\xff\x07", b"\x10\xf8"):  # 127.9375 and -127 degrees, with a CRC that is right
        ds18b20.scratchpad = content + b"\x4b\x46\x7f\xff\x0c\x10"
        outcomes.append(measure(probe_of({"kind": "ds18b20", "pin": WIRE, "rom": None})))
    for word in (0x7FFC << 16 | 0x1900, 0x8000 << 16 | 0x1900):  # 2047 and -2048 degrees
        max31855.word = word
        outcomes.append(measure(probe_of(MAX31855)))
    max31855.word, max31855.flip = 0x0190_1900, 20
    outcomes.append(measure(probe_of(MAX31855)))
    return outcomes


def dht22_measures_and_fails() -> list:
    sensor = probe_of({"kind": "dht22", "pin": WIRE})
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
    sensor = probe_of(MAX31855)
    outcomes = []
    # Tables 4 and 5 of the datasheet: 1600 and 127, 100.75 and 25, -0.25 and -0.0625, -250 and -55 degrees.
    for thermocouple, junction in ((0x1900, 0x7F0), (0x193, 0x190), (0x3FFF, 0xFFF), (0x3C18, 0xC90)):
        chip.word = thermocouple << 18 | junction << 4
        outcomes.append(measure(sensor))
    for chip.word in (0x0001_1901, 0x0001_1902, 0x0001_1904, 0x0001_1907, 0, 0xFFFF_FFFF, None, 0x0190_1900):
        outcomes.append(measure(sensor))
    return outcomes


def adc_measures() -> list:
    sensor = probe_of({"kind": "adc", "pin": 26, "full_scale_mv": 6600, "name": "battery"})
    outcomes = []
    for volts in (0, 1.0, 2.05, 3.3):
        machine.apply_voltage(26, volts)
        outcomes += measure(sensor)
    return outcomes


def adc_of_an_esp32_measures() -> list:
    machine.ADC = machine.CrookedADC
    sensor = probe_of({"kind": "adc", "pin": 34, "full_scale_mv": 6600, "name": "battery"})
    outcomes = []
    for volts in (0.0, 0.05, 1.0, 2.9, 3.2):
        machine.apply_voltage(34, volts)
        outcomes.append(measure(sensor))
    return outcomes


class Contact:
    """A switch to ground that bounces when it closes and opens. It stands for `time`, too: `ms` is the moment."""

    ms = 0

    @staticmethod
    def ticks_ms() -> int:
        return Contact.ms

    @staticmethod
    def ticks_add(ms: int, more_ms: int) -> int:
        return ms + more_ms

    @staticmethod
    def ticks_diff(later: int, earlier: int) -> int:
        return later - earlier

    @staticmethod
    def press(pin: int, bounces: int, closed_ms: int) -> None:
        for wait_ms, level in ((closed_ms, 0), (closed_ms, 1)):
            for _ in range(bounces):
                machine.drive(pin, level)
                machine.drive(pin, 1 - level)
                Contact.ms += 1
            machine.drive(pin, level)
            Contact.ms += wait_ms


def pulses_of_a_bouncing_contact() -> list:
    """Without and with `debounce_ms`, with pulses that are longer and shorter than it."""
    sys.modules["time"] = Contact  # type: ignore[assignment]
    every = probe_of({"kind": "pulse", "pin": 5, "edge": "falling"})
    outcomes = [measure(every)]
    Contact.press(5, bounces=3, closed_ms=200)
    outcomes.append(measure(every))
    clean = probe_of({"kind": "pulse", "pin": 6, "edge": "falling", "debounce_ms": 20})
    outcomes.append(measure(clean))
    for closed_ms in (200, 200, 5, 200, 200):
        Contact.press(6, bounces=3, closed_ms=closed_ms)
        Contact.ms += 50
    outcomes.append(measure(clean))
    return outcomes


def pulses_that_a_busy_board_cannot_take() -> list:
    sys.modules["time"] = Contact  # type: ignore[assignment]
    machine.Counter = machine.HardwareCounter
    machine.HAS_HARD_INTERRUPTS = False
    counted = probe_of({"kind": "pulse", "pin": 5, "edge": "falling"})
    clean = probe_of({"kind": "pulse", "pin": 6, "edge": "falling", "debounce_ms": 20, "name": "rain"})
    outcomes = [measure(counted), measure(clean)]
    for machine.Pin.is_busy in (False, True):
        for _ in range(20):
            Contact.press(5, bounces=0, closed_ms=100)
            Contact.press(6, bounces=0, closed_ms=100)
    machine.Pin.is_busy = False
    machine.run_queue()
    outcomes += [measure(counted), measure(clean)]
    return outcomes


def pulses_are_counted() -> list:
    falling = probe_of({"kind": "pulse", "pin": 5, "edge": "falling"})
    rising = probe_of({"kind": "pulse", "pin": 6, "edge": "rising", "name": "rain"})
    machine.drive(6, 0)
    outcomes = [measure(falling), measure(rising)]
    for _ in range(3):
        for pin, level in ((5, 0), (6, 1), (5, 1), (6, 0)):
            machine.drive(pin, level)
    outcomes.append(measure(falling))
    outcomes.append(measure(rising))
    return outcomes


print(json.dumps(globals()[sys.argv[1]]()))
