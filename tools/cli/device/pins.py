"""The pins of boards: which of them a part of the configuration cannot use, and which two parts would share one.

From the datasheets of the chips and ESP-IDF's pages "GPIO & RTC GPIO" and "ADC". A board may lead fewer pins to its
edge than its chip has.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from device.config import Config


class Chip(NamedTuple):
    """A board's chip: its pins, and those with a restriction."""

    name: str
    pins: frozenset[int]
    flash: frozenset[int]
    inputs: frozenset[int]
    """Pins that are inputs only, without pull-up and pull-down."""
    converters: frozenset[int]
    shared_converters: frozenset[int] = frozenset()
    """Pins of the converter that the radio needs while it is on (ADC2)."""
    radio: frozenset[int] = frozenset()
    """Pins that a Pico W's radio uses."""
    lines: Mapping[str, Mapping[str, frozenset[int]]] = {}
    """By kind of bus and line, the pins that lead to it; empty where each pin leads to each line."""
    numbers: Mapping[str, Callable[[int], int]] = {}
    """By kind of bus, the number of the bus to which a pin leads."""


def _span(*ranges: tuple[int, int]) -> frozenset[int]:
    return frozenset(pin for first, last in ranges for pin in range(first, last + 1))


def _every_fourth(first: int) -> frozenset[int]:
    return frozenset(range(first, 48, 4))


CHIPS = {
    "esp32": Chip(
        "ESP32",
        pins=_span((0, 23), (25, 27), (32, 39)),
        flash=_span((6, 11)),
        inputs=_span((34, 39)),
        converters=_span((32, 39)),
        shared_converters=frozenset({0, 2, 4, 12, 13, 14, 15, 25, 26, 27}),
    ),
    "esp32s2": Chip(
        "ESP32-S2",
        pins=_span((0, 21), (26, 46)),
        flash=_span((26, 32)),
        inputs=frozenset({46}),
        converters=_span((1, 10)),
        shared_converters=_span((11, 20)),
    ),
    "esp32s3": Chip(
        "ESP32-S3",
        pins=_span((0, 21), (26, 48)),
        flash=_span((26, 32)),
        inputs=frozenset(),
        converters=_span((1, 10)),
        shared_converters=_span((11, 20)),
    ),
    "esp32c3": Chip(
        "ESP32-C3",
        pins=_span((0, 21)),
        flash=_span((12, 17)),
        inputs=frozenset(),
        converters=_span((0, 4)),  # its ADC2, at pin 5, does not work (errata, section 3.3)
    ),
    "rp2": Chip(
        "RP2040 or RP2350",
        pins=_span((0, 47)),
        flash=frozenset(),
        inputs=frozenset(),
        converters=_span((26, 29), (40, 47)),
        radio=frozenset({23, 24, 25, 29}),
        lines={
            "I2C": {"sda": _every_fourth(0) | _every_fourth(2), "scl": _every_fourth(1) | _every_fourth(3)},
            "SPI": {"miso": _every_fourth(0), "sck": _every_fourth(2), "mosi": _every_fourth(3)},
        },
        numbers={"I2C": lambda pin: pin // 2 % 2, "SPI": lambda pin: pin // 8 % 2},
    ),
}


class Use(NamedTuple):
    """One pin of one part. Parts on one bus share its pins: `line` says which bus and which of its lines; "" for a pin
    of the part's own."""

    key: str
    pin: int
    line: str = ""
    needs_output: bool = False
    needs_pull: bool = False
    is_analogue: bool = False


def refusals(config: Config, board: str) -> Iterator[str]:
    """A sentence for each pin that cannot do what the configuration wants of it; it names the key and the pin."""
    chip = CHIPS[board]
    owners: dict[int, Use] = {}
    for use in _uses(config):
        fault = _fault(use, chip, bool(config.networks))
        if fault:
            yield f"{use.key} is {use.pin}, {fault}"
        other = owners.setdefault(use.pin, use)
        if other is not use and not (use.line and use.line == other.line):
            yield f"{use.key} is {use.pin}, expected a pin that nothing else uses: {other.key} uses it"


def _fault(use: Use, chip: Chip, has_wifi: bool) -> str:
    pin = use.pin
    if pin not in chip.pins:
        return f"expected a pin of the {chip.name}, which has none of this number"
    if pin in chip.flash:
        return f"expected a pin that the {chip.name}'s flash does not use"
    if has_wifi and pin in chip.radio:
        return "expected a pin that the radio of a Pico W does not use"
    if use.needs_output and pin in chip.inputs:
        return f"expected a pin that can send: this one of the {chip.name} is an input only"
    if use.needs_pull and pin in chip.inputs:
        return f"expected a pin with pull-up and pull-down: this one of the {chip.name} has none"
    if chip.lines and use.line and use.line.split()[0] in chip.lines and not _leads(use, chip):
        return f"expected a pin that the {chip.name} connects with {' '.join(use.line.split()[:3])}"
    if not use.is_analogue:
        return ""
    if pin in chip.shared_converters and has_wifi:
        wanted = f"{min(chip.converters)} to {max(chip.converters)}"
        return f"expected one of {wanted}: Wi-Fi needs this pin's converter, ADC2, for itself"
    if pin not in chip.converters | chip.shared_converters:
        return f"expected a pin with a converter, as {min(chip.converters)}"
    return ""


def _leads(use: Use, chip: Chip) -> bool:
    """Whether this pin leads to its line of its bus, on a chip with fixed places for them."""
    kind, number, name = use.line.split()[:3]
    return use.pin in chip.lines[kind][name] and chip.numbers[kind](use.pin) == int(number)


def _uses(config: Config) -> Iterator[Use]:
    if config.flash_path.startswith("spi:") and config.flash_path.count(":") == 2:
        cs = config.flash_path.rpartition(":")[2]
        if cs.isdecimal():
            yield Use("the last number of flash.path", int(cs), needs_output=True)
    for number, port in enumerate(config.ports):
        parts = port.path.split(":") if port.kind == "uart" else []
        if len(parts) == 3 and all(part.isdecimal() for part in parts):
            key = "port.path" if len(config.ports) == 1 else f"port[{number}].path"
            yield Use(f"the second number of {key}", int(parts[1]), f"UART {parts[0]} tx", needs_output=True)
            yield Use(f"the third number of {key}", int(parts[2]), f"UART {parts[0]} rx")
    if config.field and config.field.battery:
        yield Use("field.battery.pin", config.field.battery.pin, is_analogue=True)
    if config.field and config.field.button:
        yield Use("field.button.pin", config.field.button.pin, needs_pull=True)
    for number, sensor in enumerate(config.sensors):
        yield from _uses_of(f"sensors[{number}]", sensor.driver.__name__.lower(), sensor.arguments)


def _uses_of(key: str, kind: str, arguments: tuple) -> Iterator[Use]:
    """The pins of one sensor, from what its driver's `read` returns."""
    if kind in ("bme280", "sht31"):
        bus, scl, sda = arguments[0]
        yield Use(f"{key}.scl", scl, f"I2C {bus} scl", needs_output=True)
        yield Use(f"{key}.sda", sda, f"I2C {bus} sda", needs_output=True)
    elif kind == "max31855":
        bus, sck, mosi, miso = arguments[0]
        yield Use(f"{key}.sck", sck, f"SPI {bus} sck", needs_output=True)
        yield Use(f"{key}.mosi", mosi, f"SPI {bus} mosi", needs_output=True)
        yield Use(f"{key}.miso", miso, f"SPI {bus} miso")
        yield Use(f"{key}.cs", arguments[1], needs_output=True)
    elif kind == "ds18b20":
        yield Use(f"{key}.pin", arguments[0], "1-Wire", needs_output=True)
    elif kind == "adc":
        yield Use(f"{key}.pin", arguments[0], is_analogue=True)
    elif kind in ("dht22", "pulse"):
        yield Use(f"{key}.pin", arguments[0], needs_output=kind == "dht22", needs_pull=kind == "pulse")
