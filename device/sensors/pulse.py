"""Counts pulses at a pin, for example of a meter, a flow sensor or a rain gauge."""

from device.sensors.buses import read_pin
from device.sensors.driver import Driver

COUNT_MASK = 0x3FFF_FFFF  # larger integers need memory on a 32-bit board, and an interrupt cannot allocate any


class Pulse(Driver):
    """Counts edges since the firmware's start. The pin is pulled to the level before the edge."""

    METRICS = ("count",)
    NEEDS_POWER = True

    @staticmethod
    def read(section) -> tuple:
        return read_pin(section), section.choice("edge", ("falling", "rising"))

    def __init__(self, pin: int, edge: str) -> None:
        from machine import Pin

        falling = edge == "falling"
        self._count = 0
        self._pin = Pin(pin, Pin.IN, Pin.PULL_UP if falling else Pin.PULL_DOWN)
        trigger = Pin.IRQ_FALLING if falling else Pin.IRQ_RISING
        try:
            self._pin.irq(handler=self._tick, trigger=trigger, hard=True)
        except TypeError:  # a board that has only soft interrupts
            self._pin.irq(handler=self._tick, trigger=trigger)

    def sample(self) -> list:
        return [("count", "count", self._count)]

    def _tick(self, pin) -> None:
        self._count = (self._count + 1) & COUNT_MASK
