"""The buses of a board. Sensors on one bus share it."""

PIN_MAX = 48  # the highest pin number of all supported boards
I2C_HZ = 100_000  # slow enough for long wires
SPI_HZ = 1_000_000

_open: dict = {}  # the open buses by their wiring; an I2C wiring has three elements, an SPI wiring four


def read_i2c(section) -> tuple:
    """Reads (bus, scl, sda) from a section of the configuration."""
    return section.integer("bus", 0, 1), read_pin(section, "scl"), read_pin(section, "sda")


def read_spi(section) -> tuple:
    """Reads (bus, sck, mosi, miso) from a section of the configuration."""
    return section.integer("bus", 0, 2), read_pin(section, "sck"), read_pin(section, "mosi"), read_pin(section, "miso")


def read_pin(section, key: str = "pin") -> int:
    """Reads a pin number from a section of the configuration."""
    return section.integer(key, 0, PIN_MAX)


def i2c(wiring: tuple):
    """Returns the `machine.I2C` of this wiring (from `read_i2c`); sensors on one bus share it."""
    if wiring not in _open:
        from machine import I2C, Pin

        bus, scl, sda = wiring
        _open[wiring] = I2C(bus, scl=Pin(scl), sda=Pin(sda), freq=I2C_HZ)
    return _open[wiring]


def spi(wiring: tuple):
    """Returns the `machine.SPI` of this wiring (from `read_spi`), in mode 0; sensors on one bus share it."""
    if wiring not in _open:
        from machine import SPI, Pin

        bus, sck, mosi, miso = wiring
        _open[wiring] = SPI(bus, baudrate=SPI_HZ, polarity=0, phase=0, sck=Pin(sck), mosi=Pin(mosi), miso=Pin(miso))
    return _open[wiring]
