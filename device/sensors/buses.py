"""The buses of a board. Sensors on one bus share it."""

PIN_MAX = 48  # of all boards that are supported
I2C_HZ = 100_000  # which long wires bear
SPI_HZ = 1_000_000

_open: dict = {}  # by wiring; a bus's differs in length from that of the other kind


def read_i2c(section) -> tuple:
    """(bus, scl, sda) of a section of the configuration."""
    return section.integer("bus", 0, 1), read_pin(section, "scl"), read_pin(section, "sda")


def read_spi(section) -> tuple:
    """(bus, sck, mosi, miso) of a section of the configuration."""
    return section.integer("bus", 0, 2), read_pin(section, "sck"), read_pin(section, "mosi"), read_pin(section, "miso")


def read_pin(section, key: str = "pin") -> int:
    """A pin's number."""
    return section.integer(key, 0, PIN_MAX)


def i2c(wiring: tuple):
    """A `machine.I2C`; `wiring` is what `read_i2c` gave."""
    if wiring not in _open:
        from machine import I2C, Pin

        bus, scl, sda = wiring
        _open[wiring] = I2C(bus, scl=Pin(scl), sda=Pin(sda), freq=I2C_HZ)
    return _open[wiring]


def spi(wiring: tuple):
    """A `machine.SPI` in mode 0; `wiring` is what `read_spi` gave."""
    if wiring not in _open:
        from machine import SPI, Pin

        bus, sck, mosi, miso = wiring
        _open[wiring] = SPI(bus, baudrate=SPI_HZ, polarity=0, phase=0, sck=Pin(sck), mosi=Pin(mosi), miso=Pin(miso))
    return _open[wiring]
