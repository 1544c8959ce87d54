"""Samples every driver on the simulated board, with faults of chips and lines; prints what it found as JSON.

`python -m tools.lab.torture.sensors.run TRANSFERS SEED`, with the simulated board's modules on the path. Each chip has
its faults from datasheets, errata and reports of users: wrong bits on the line, frames of zeros and of ones, frames of
other chips, registers that read as zero, values that a copy of the chip gives.
"""

import json
import random
import sys
from collections import Counter
from collections.abc import Callable

import machine

from tools.lab.sim.chips.bme280 import Bme280
from tools.lab.sim.chips.dht22 import Dht22
from tools.lab.sim.chips.ds18b20 import Ds18b20
from tools.lab.sim.chips.max31855 import Max31855
from tools.lab.sim.chips.sht31 import Sht31
from tools.lab.sim.probes import probe_of

RANGES = {  # of the datasheets, and not the drivers' own
    "bme280": {"temperature": (-40, 85), "humidity": (0, 100), "pressure": (30_000, 110_000)},
    "dht22": {"temperature": (-40, 80), "humidity": (0, 100)},
    "ds18b20": {"temperature": (-55, 125)},
    "max31855": {"temperature": (-270, 1800), "cold_junction": (-55, 127)},
    "sht31": {"temperature": (-40, 125), "humidity": (0, 100)},
}
SHARES = {"bme280": 30, "dht22": 32, "ds18b20": 3, "max31855": 20, "sht31": 20}  # a DS18B20 speaks bit by bit
WIRE, OTHER_WIRE, CHIP_SELECT = 4, 5, 15
VIOLATIONS_MAX = 20
CALIBRATION = (
    (27504, 26435, -1000),
    (36477, -10685, 3024, 2855, 140, -7, 15500, -14600, 6000),
    (75, 370, 0, 313, 50, 30),
)


class Bench:
    """The five sensors on their board. `transfers` counts the samples with a fault, by sensor and by fault."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 10_000
        self.transfers: Counter[str] = Counter()
        self.errors = self.readings = 0
        self.violations: list[str] = []
        self.dht22 = Dht22(self._now, 500, 200)
        self.sht31 = Sht31(self._now, 0x6666, 0x8000)
        self.ds18b20 = Ds18b20(self._now, b"\xff\x64\x1e\x05\x16\x04", 320)
        self.max31855 = Max31855(0x0190_1900)
        self.bme280 = Bme280(self._now, *CALIBRATION, (519888, 415148, 30281))
        machine.connect_wire(self.dht22, WIRE)
        machine.connect_wire(self.ds18b20, OTHER_WIRE)
        machine.connect_i2c(self.sht31, 0, 0x44)
        machine.connect_i2c(self.bme280, 0, 0x76)
        machine.connect(self.max31855, spi=1, cs=CHIP_SELECT)
        self._probes = {kind: probe_of(entry) for kind, entry in self._entries().items()}

    def _now(self) -> int:
        return self.now_ms

    def _entries(self) -> dict[str, dict[str, object]]:
        i2c = {"bus": 0, "scl": 22, "sda": 21}
        return {
            "bme280": {"kind": "bme280", "address": "0x76", **i2c},
            "dht22": {"kind": "dht22", "pin": WIRE},
            "ds18b20": {"kind": "ds18b20", "pin": OTHER_WIRE, "rom": None},
            "max31855": {"kind": "max31855", "bus": 1, "sck": 14, "mosi": 13, "miso": 12, "cs": CHIP_SELECT},
            "sht31": {"kind": "sht31", "address": "0x44", **i2c},
        }

    def sample(self, kind: str) -> list[tuple[str, str | None, object]]:
        self.now_ms += 5000
        self.now_ms += self._probes[kind].start()
        return self._probes[kind].sample()

    def strike(self) -> None:
        """One sensor measures something, first as it should and then with a fault."""
        (kind,) = self.random.choices(list(SHARES), list(SHARES.values()))
        getattr(self, f"_vary_{kind}")()
        clean = self.sample(kind)
        self._judge(kind, "no fault", clean)
        faults: dict[str, Callable[[], None]] = getattr(self, f"_faults_of_{kind}")()
        fault = self.random.choice(list(faults))
        faults[fault]()
        found = self.sample(kind)
        self.transfers[f"{kind}: {fault}"] += 1
        self._judge(kind, fault, found)
        if fault == "one wrong bit" and not _is_error(found) and found != clean:
            self._violate(f"{kind}, {fault}: {found} instead of {clean}")
        self._repair()

    def _judge(self, kind: str, fault: str, samples: list[tuple[str, str | None, object]]) -> None:
        if _is_error(samples):
            self.errors += 1
            return
        self.readings += 1
        for name, _, value in samples:
            low, high = RANGES[kind][name.rpartition(".")[2]]
            if not isinstance(value, int | float) or not low <= value <= high:
                self._violate(f"{kind}, {fault}: {name} is {value}")

    def _violate(self, text: str) -> None:
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(text)

    def _repair(self) -> None:
        self.dht22.flipped_bit = self.dht22.frame = None
        self.dht22.is_complement = False
        self.sht31.flipped_bit = self.sht31.frame = None
        self.ds18b20.flipped_bit = self.ds18b20.scratchpad = None
        self.max31855.flip = None
        self.bme280.flip = _nothing
        self.bme280.is_blank = False

    def _vary_dht22(self) -> None:
        self.dht22.humidity = self.random.randint(0, 1000)
        self.dht22.temperature = self.random.randint(-400, 800)

    def _faults_of_dht22(self) -> dict[str, Callable[[], None]]:
        chip, choose = self.dht22, self.random
        dht11 = bytes([choose.randint(20, 90), 0, choose.randint(0, 50), 0])
        return {
            "one wrong bit": lambda: setattr(chip, "flipped_bit", choose.randrange(40)),
            "frost in two's complement": lambda: setattr(chip, "is_complement", True),
            "a DHT11": lambda: setattr(chip, "frame", dht11),
            "zeros": lambda: setattr(chip, "frame", bytes(4)),
            "ones": lambda: setattr(chip, "frame", b"\xff" * 4),
            "any frame with its sum": lambda: setattr(chip, "frame", choose.randbytes(4)),
        }

    def _vary_sht31(self) -> None:
        self.sht31.temperature = self.random.randint(0, 0xFFFF)
        self.sht31.humidity = self.random.randint(0, 0xFFFF)

    def _faults_of_sht31(self) -> dict[str, Callable[[], None]]:
        chip, choose = self.sht31, self.random
        return {
            "one wrong bit": lambda: setattr(chip, "flipped_bit", choose.randrange(48)),
            "zeros": lambda: setattr(chip, "frame", bytes(6)),
            "ones": lambda: setattr(chip, "frame", b"\xff" * 6),
            "any frame": lambda: setattr(chip, "frame", choose.randbytes(6)),
            "all zero, with its checksum": lambda: setattr(chip, "temperature", 0),
            "all ones, with its checksum": lambda: setattr(chip, "temperature", 0xFFFF),
        }

    def _vary_ds18b20(self) -> None:
        self.ds18b20.sixteenths = self.random.randint(-55 * 16, 125 * 16)

    def _faults_of_ds18b20(self) -> dict[str, Callable[[], None]]:
        chip, choose = self.ds18b20, self.random
        copy = choose.choice((b"\xff\x07", b"\x10\xf8", b"\xff\xff", choose.randbytes(2))) + b"\x4b\x46\x7f\xff\x0c\x10"
        return {
            "one wrong bit": lambda: setattr(chip, "flipped_bit", choose.randrange(72)),
            "a copy's value": lambda: setattr(chip, "scratchpad", copy),
            "zeros": lambda: setattr(chip, "scratchpad", bytes(8)),
            "no power": chip.power_on,
        }

    def _vary_max31855(self) -> None:
        thermocouple, junction = self.random.randint(-1080, 7200), self.random.randint(-880, 2032)
        self.max31855.word = (thermocouple & 0x3FFF) << 18 | (junction & 0xFFF) << 4

    def _faults_of_max31855(self) -> dict[str, Callable[[], None]]:
        chip, choose = self.max31855, self.random
        return {
            "one wrong bit": lambda: setattr(chip, "flip", choose.randrange(32)),
            "zeros": lambda: setattr(chip, "word", 0),
            "ones": lambda: setattr(chip, "word", 0xFFFF_FFFF),
            "no power": lambda: setattr(chip, "word", None),
            "any word": lambda: setattr(chip, "word", choose.getrandbits(32)),
        }

    def _vary_bme280(self) -> None:
        temperature = self.random.randint(330_000, 700_000)
        self.bme280.raw = temperature, self.random.randint(200_000, 600_000), self.random.randint(15_000, 50_000)

    def _faults_of_bme280(self) -> dict[str, Callable[[], None]]:
        chip, choose = self.bme280, self.random

        def new() -> None:
            self._probes["bme280"] = probe_of(self._entries()["bme280"])

        def flip() -> None:
            left = [choose.randrange(14)]

            def flip_once(register: int, length: int) -> int | None:
                left[0] -= 1
                return choose.randrange(8 * length) if left[0] == 0 else None

            chip.flip = flip_once
            if choose.randrange(2):
                new()

        def start_without_calibration() -> None:
            chip.is_blank = True
            chip.power_on()
            new()

        return {
            "one wrong bit": flip,
            "a calibration of zeros": start_without_calibration,
            "power lost": chip.power_on,
            "any data": lambda: setattr(
                chip, "raw", (choose.getrandbits(20), choose.getrandbits(20), choose.getrandbits(16))
            ),
        }


def _nothing(register: int, length: int) -> int | None:
    return None


def _is_error(samples: list[tuple[str, str | None, object]]) -> bool:
    return len(samples) == 1 and samples[0][0].endswith(".error")


def main(transfers: int, seed: int) -> None:
    bench = Bench(seed)
    for _ in range(transfers):
        bench.strike()
    more = {"transfers": sum(bench.transfers.values()), "readings": bench.readings, "errors": bench.errors}
    print(json.dumps({**more, "faults": dict(sorted(bench.transfers.items())), "violations": bench.violations}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
