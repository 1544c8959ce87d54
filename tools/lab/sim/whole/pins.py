"""The pins of a simulated board that DTR and RTS pull, and its two buttons."""

import asyncio
from collections.abc import Callable

RISE_S = 0.1  # how long the reset pin takes to rise; real boards take 1 to 10 ms, but their modem lines follow at once


class Pins:
    """The reset pin and the boot pin.

    Args:
        on_hold: called when the reset pin goes low.
        on_rise: called when it has risen.

    Attributes:
        boots_loader: whether the boot pin was low at the last reset.
    """

    def __init__(self, on_hold: Callable[[], object], on_rise: Callable[[], object]) -> None:
        self.boots_loader = False
        self._on_hold, self._on_rise = on_hold, on_rise
        self._is_held = self._is_boot_low = False
        self._rising: asyncio.TimerHandle | None = None

    def turn_lines(self, is_reset: bool, is_boot: bool) -> None:
        """What DTR and RTS do to the pins: the chip starts when its reset pin has risen, with the boot pin's level."""
        self._is_boot_low = is_boot
        if is_reset:
            self._is_held = True
            if self._rising is not None:
                self._rising.cancel()
            self._on_hold()
        elif self._is_held:
            self._is_held = False
            self._rising = asyncio.get_running_loop().call_later(RISE_S, self._rise)

    def _rise(self) -> None:
        self.boots_loader = self._is_boot_low
        self._on_rise()
