"""`machine` of a simulated board: pins and SPI buses, with chips that `connect` solders on.

The modules of this folder stand in for a board's own where this folder is first on the import path.
"""

PINS: dict = {}  # number: level
CHIPS: list = []  # (SPI number, chip-select pin's number, chip)


def connect(chip: object, spi: int, cs: int) -> None:
    """Solders a chip to an SPI bus and a chip-select pin."""
    CHIPS.append((spi, cs, chip))


def disconnect_all() -> None:
    """The next test's board begins bare."""
    CHIPS.clear()
    PINS.clear()


class Pin:
    """A pin that a program may drive."""

    IN, OUT = 0, 1

    def __init__(self, number: int, mode: int = IN, value: int | None = None) -> None:
        self._number = number
        self._mode = mode
        if value is not None:
            self(value)

    def __call__(self, level: int | None = None) -> int:
        if level is not None and self._mode == Pin.OUT:
            PINS[self._number] = level
            for _, cs, chip in CHIPS:
                if cs == self._number:
                    chip.select(level)
        return PINS.get(self._number, 1)


class SPI:
    """A bus in mode 0 or 3: what no chip drives reads high."""

    def __init__(self, number: int, baudrate: int = 1_000_000, polarity: int = 0, phase: int = 0) -> None:
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
