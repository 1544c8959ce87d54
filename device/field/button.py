"""A button that resets the device to its file when it is held, for a person who stands before it."""

from machine import Pin

LOOK_MS = 100


class Button:
    """A button that connects its pin with ground, with the board's own pull-up.

    Args:
        pin: the pin's number.
        hold_s: how long the button must be held without a break.
    """

    def __init__(self, pin: int, hold_s: int) -> None:
        self._pin = Pin(pin, Pin.IN, Pin.PULL_UP)
        self._hold_ms = hold_s * 1000
        self._look_ms = 0
        self._since_ms: int | None = None  # since when it is held

    def next_timer_ms(self) -> int:
        """When `is_held` wants to be called."""
        return self._look_ms

    def is_held(self, now_ms: int) -> bool:
        """Looks at the button; returns True once it has been held for long enough."""
        if now_ms < self._look_ms:
            return False
        late_ms = now_ms - self._look_ms
        self._look_ms = now_ms + LOOK_MS
        if self._pin.value():
            self._since_ms = None
        elif self._since_ms is None or late_ms > self._hold_ms:  # so long without a look says nothing
            self._since_ms = now_ms
        if self._since_ms is None or now_ms - self._since_ms < self._hold_ms:
            return False
        self._since_ms = None  # if the reset fails, the button must be held anew
        return True
