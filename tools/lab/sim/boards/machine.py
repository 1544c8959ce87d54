"""`machine` of a simulated board. `connect` and similar functions connect simulated chips to its pins and buses.

The simulation has the difficulties for which a driver must be ready: buses on which no chip answers, open lines that
read high, contacts that change between two reads, interrupts that may not allocate memory, a converter's noise,
watchdogs and sleeps that end the program.
"""

import sys

from _chip import DEEPSLEEP_RESET, HARD_RESET, PWRON_RESET, SOFT_RESET, WDT_RESET
from _power import RTC, WDT, Timer, bootloader, deepsleep, freq, mem32, reset, reset_cause, soft_reset, unique_id
from _uart import UART

try:
    from micropython import heap_lock, heap_unlock
except ImportError:  # in an interrupt, CPython may allocate memory

    def heap_lock() -> None:
        pass

    def heap_unlock() -> None:
        pass


__all__ = (
    "DEEPSLEEP_RESET",
    "HARD_RESET",
    "PWRON_RESET",
    "RTC",
    "SOFT_RESET",
    "UART",
    "WDT",
    "WDT_RESET",
    "Timer",
    "bootloader",
    "deepsleep",
    "freq",
    "mem32",
    "reset",
    "reset_cause",
    "soft_reset",
    "unique_id",
)
PINS: dict = {}  # number: level
CHIPS: list = []  # (SPI number, chip-select pin's number, chip)
I2C_CHIPS: dict = {}  # (bus, address): chip
WIRES: dict = {}  # pin's number: chips on that wire
VOLTAGES: dict = {}  # pin's number: volts
HANDLERS: dict = {}  # pin's number: (handler, trigger, hard, pin)
COUNTERS: list = []  # hardware counters
QUEUE: list = []  # soft interrupts that wait: (handler, pin)
QUEUE_DEPTH = 8  # MICROPY_SCHEDULER_DEPTH; what comes while the queue is full is lost, and nothing tells it
HAS_HARD_INTERRUPTS = sys.platform != "esp32"
PIN_MAX = 48
REFERENCE_V = 3.3
NOISE_STEPS = 6  # of 4096, up and down
ENODEV, ETIMEDOUT = 19, 110


def connect(chip: object, spi: int, cs: int) -> None:
    """Wires a chip to an SPI bus and a chip-select pin."""
    CHIPS.append((spi, cs, chip))


def connect_i2c(chip: object, bus: int, address: int) -> None:
    """Wires a chip to an I2C bus. Its `write(content)` and `read(length)` raise OSError if it does not acknowledge."""
    I2C_CHIPS[bus, address] = chip


def disconnect_i2c(bus: int, address: int) -> None:
    I2C_CHIPS.pop((bus, address))


def connect_wire(chip: object, pin: int) -> None:
    """Wires a chip to the data line of a 1-Wire bus or of a DHT sensor."""
    WIRES.setdefault(pin, []).append(chip)


def disconnect_wire(pin: int) -> None:
    WIRES.pop(pin)


def apply_voltage(pin: int, volts: float) -> None:
    VOLTAGES[pin] = volts


def disconnect_all() -> None:
    """Removes all chips, for the next test's board."""
    for collection in (PINS, I2C_CHIPS, WIRES, VOLTAGES, HANDLERS):
        collection.clear()
    for chips in (CHIPS, COUNTERS, QUEUE):
        chips.clear()


def drive(number: int, level: int) -> None:
    """Sets a pin's level from outside; an edge causes an interrupt."""
    before = PINS.get(number, 1)
    PINS[number] = level
    if level == before:
        return
    for counter in COUNTERS:
        counter.see(number, level)
    if number not in HANDLERS:
        return
    handler, trigger, hard, pin = HANDLERS[number]
    if not trigger & (Pin.IRQ_RISING if level else Pin.IRQ_FALLING):
        return
    if hard:
        heap_lock()
        try:
            handler(pin)
        finally:
            heap_unlock()
    elif len(QUEUE) < QUEUE_DEPTH:
        QUEUE.append((handler, pin))
        if not Pin.is_busy:
            run_queue()


def run_queue() -> None:
    """The firmware comes to run the soft interrupts that wait."""
    while QUEUE:
        handler, pin = QUEUE.pop(0)
        handler(pin)


class Pin:
    """A pin. Raises ValueError if the board has no pin of this number."""

    IN, OUT, OPEN_DRAIN = 0, 1, 2
    PULL_UP, PULL_DOWN = 1, 2
    IRQ_RISING, IRQ_FALLING = 1, 2
    is_busy = False  # whether the firmware runs no soft interrupts now, as in an erase of flash

    def __init__(self, number: int, mode: int = IN, pull: int | None = None, value: int | None = None) -> None:
        if not 0 <= number <= PIN_MAX:
            raise ValueError("invalid pin")
        self.number = number
        self.init(mode, pull, value)

    def init(self, mode: int | None = None, pull: int | None = None, value: int | None = None) -> None:
        if mode is not None:
            self._mode = mode
        if value is not None:
            self(value)

    def __call__(self, level: int | None = None) -> int:
        if level is not None and self._mode != Pin.IN:
            PINS[self.number] = level
            for _, cs, chip in CHIPS:
                if cs == self.number:
                    chip.select(level)
        return PINS.get(self.number, 1)

    value = __call__

    def irq(self, handler: object, trigger: int = IRQ_RISING | IRQ_FALLING, hard: bool = False) -> None:
        """Sets the handler of an edge; in a hard interrupt it cannot allocate memory, as on a board."""
        if hard and not HAS_HARD_INTERRUPTS:
            raise TypeError("extra keyword arguments given")
        HANDLERS[self.number] = (handler, trigger, hard, self)


class HardwareCounter:
    """`Counter` of an ESP32 since MicroPython 1.26: it counts the edges of one kind, whatever runs meanwhile."""

    RISING, FALLING = 1, 2

    def __init__(self, number: int, pin: Pin, *, edge: int = RISING) -> None:
        self._pin, self._edge, self._count = pin.number, edge, 0
        COUNTERS.append(self)

    def see(self, number: int, level: int) -> None:
        if number == self._pin and level == (self._edge == self.RISING):
            self._count += 1

    def value(self) -> int:
        return self._count


if sys.platform == "esp32":
    Counter = HardwareCounter


class ADC:
    """A converter at a pin: 12 bits with noise, scaled to 16 bits as MicroPython does."""

    _random = 1  # the noise of all converters

    def __init__(self, pin: object) -> None:
        self._number = getattr(pin, "number", pin)

    def read_u16(self) -> int:
        ADC._random = (ADC._random * 16807) % 0x7FFF_FFFF
        noise = ADC._random % (2 * NOISE_STEPS + 1) - NOISE_STEPS
        raw = round(VOLTAGES.get(self._number, 0) / REFERENCE_V * 4095) + noise
        raw = max(0, min(4095, raw))
        return raw << 4 | raw >> 8


class CrookedADC(ADC):
    """An ESP32's converter: it measures nothing below 75 mV, is bent above 2.6 V, and ends at 3.1 V. `read_uv` knows it
    from the factory's calibration (ESP-IDF, "ADC Calibration Driver")."""

    ATTN_11DB = 3

    def atten(self, attenuation: int) -> None:
        self._attenuation = attenuation

    def read_u16(self) -> int:
        volts = VOLTAGES.get(self._number, 0)
        bent = max(0, volts - 0.075) + max(0, volts - 2.6) ** 2
        raw = max(0, min(4095, round(bent / 3.025 * 4095)))
        return raw << 4 | raw >> 8

    def read_uv(self) -> int:
        return round(min(VOLTAGES.get(self._number, 0), 3.1) * 1_000_000)


if sys.platform == "esp32":
    ADC = CrookedADC  # type: ignore[misc]


class I2C:
    """An I2C bus. Raises ValueError if the board has no bus of this number, OSError if no chip acknowledges."""

    def __init__(self, number: int, *, scl: object, sda: object, freq: int = 400_000) -> None:
        if number not in (0, 1):
            raise ValueError(f"I2C({number}) doesn't exist")
        self._number = number

    def scan(self) -> list:
        return sorted([address for bus, address in I2C_CHIPS if bus == self._number])

    def writeto(self, address: int, content: bytes) -> int:
        self._chip(address).write(bytes(content))
        return len(content)

    def readfrom_into(self, address: int, buffer: bytearray) -> None:
        buffer[:] = self._chip(address).read(len(buffer))

    def writeto_mem(self, address: int, register: int, content: bytes) -> None:
        self._chip(address).write(bytes([register]) + content)

    def readfrom_mem_into(self, address: int, register: int, buffer: bytearray) -> None:
        chip = self._chip(address)
        chip.write(bytes([register]))
        buffer[:] = chip.read(len(buffer))

    def _chip(self, address: int):
        if (self._number, address) not in I2C_CHIPS:
            raise OSError(ENODEV)
        return I2C_CHIPS[self._number, address]


class SPI:
    """An SPI bus. Its chips understand only modes 0 and 3; a line that no chip drives reads high."""

    def __init__(
        self,
        number: int,
        baudrate: int = 1_000_000,
        polarity: int = 0,
        phase: int = 0,
        sck: object = None,
        mosi: object = None,
        miso: object = None,
    ) -> None:
        self._number = number
        self._is_understood = polarity == phase

    def write(self, content: bytes) -> None:
        for chip in self._selected():
            chip.take(bytes(content))

    def readinto(self, buffer: bytearray) -> None:
        buffer[:] = b"\xff" * len(buffer)
        for chip in self._selected():
            chip.give(buffer)

    def _selected(self) -> list:
        if not self._is_understood:
            return []
        return [chip for spi, _, chip in CHIPS if spi == self._number and chip.is_selected]


def dht_readinto(pin: Pin, buffer: bytearray) -> None:
    """Reads the five bytes of a DHT sensor, as MicroPython does in C. Raises OSError if no sensor answers."""
    if pin.number not in WIRES:
        raise OSError(ETIMEDOUT)
    (chip,) = WIRES[pin.number]
    buffer[:] = chip.read()
