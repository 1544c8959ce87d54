"""Counts pulses at a pin, for example of a meter, a flow sensor or a rain gauge."""

from device.sensors.buses import read_pin
from device.sensors.driver import Driver

COUNT_MASK = 0x3FFF_FFFF  # larger integers need memory on a 32-bit board, and an interrupt cannot allocate any
DEBOUNCE_MS_MAX = 1000

_counters: dict = {}  # the board's hardware counters by pin; they go on counting when a driver is made anew


class Pulse(Driver):
    """Counts edges since the firmware's start. The pin is pulled to the level before the edge.

    Where the board has hardware counters they count, so that no edge is missed while the firmware is busy. They cannot
    tell a contact's bounces from pulses: with `debounce_ms` interrupts of both edges count, since a contact
    bounces when it opens too. On an ESP32 interrupts wait in a queue of eight; then the hardware counter shows how many
    edges, bounces included, the queue had no place for: `missed`.

    Args:
        pin: the pin's number.
        edge: "falling" or "rising".
        debounce_ms: an edge counts if there was none for so long before it; 0 counts all.
    """

    METRICS = ("count", "missed")
    NEEDS_POWER = True

    @staticmethod
    def read(section) -> tuple:
        edge = section.choice("edge", ("falling", "rising"))
        debounce_ms = section.integer("debounce_ms", 0, DEBOUNCE_MS_MAX) if section.has("debounce_ms") else 0
        return read_pin(section), edge, debounce_ms

    def __init__(self, pin: int, edge: str, debounce_ms: int) -> None:
        from machine import Pin

        falling = edge == "falling"
        pull = Pin.PULL_UP if falling else Pin.PULL_DOWN
        self._count = self._handled = 0
        self._debounce_ms = debounce_ms
        self._level = 0 if falling else 1  # after the edge
        self._pin = Pin(pin, Pin.IN, pull)
        self._counter = _hardware_counter(pin, self._pin, falling)
        self._pin.init(pull=pull)  # a hardware counter may set its own
        trigger = Pin.IRQ_FALLING if falling else Pin.IRQ_RISING
        if debounce_ms:
            self._start_debouncing()
            self._listen(self._debounce, Pin.IRQ_FALLING | Pin.IRQ_RISING)
        elif self._counter is None:
            self._listen(self._tick, trigger)

    def sample(self) -> list:
        if not self._debounce_ms:
            return [("count", "count", self._count if self._counter is None else self._counter.value())]
        samples = [("count", "count", self._count)]
        if self._counter is not None:
            edges = 2 * self._counter.value() - 1  # the least count of rising and falling edges
            samples.append(("missed", "count", max(0, edges - self._handled)))
        return samples

    def _listen(self, handler, trigger: int) -> None:
        try:
            self._pin.irq(handler=handler, trigger=trigger, hard=True)
        except TypeError:  # a board that has only soft interrupts
            self._pin.irq(handler=handler, trigger=trigger)

    def _start_debouncing(self) -> None:
        from time import ticks_add, ticks_diff, ticks_ms  # type: ignore[attr-defined]

        self._ticks_ms, self._ticks_diff = ticks_ms, ticks_diff
        self._last_ms = ticks_add(ticks_ms(), -self._debounce_ms)  # the first edge counts

    def _tick(self, pin) -> None:
        self._count = (self._count + 1) & COUNT_MASK

    def _debounce(self, pin) -> None:
        self._handled = (self._handled + 1) & COUNT_MASK
        now_ms = self._ticks_ms()
        if pin() == self._level and self._ticks_diff(now_ms, self._last_ms) >= self._debounce_ms:
            self._count = (self._count + 1) & COUNT_MASK
        self._last_ms = now_ms


def _hardware_counter(number: int, pin, falling: bool):
    """Returns the `machine.Counter` of this pin; None if the board has none that is free."""
    import machine

    counter = getattr(machine, "Counter", None)
    if counter is None:
        return None
    if number not in _counters:
        try:
            edge = counter.FALLING if falling else counter.RISING
            _counters[number] = counter(len(_counters), pin, edge=edge)
        except (ValueError, OSError, RuntimeError):
            return None
    return _counters[number]
