"""How fast one client may publish."""

import asyncio
import contextlib

from gateway.signals import Signal

BURST_S = 1.0  # so much of its rate a client may send at once


class Pace:
    """Holds back whoever is faster than a rate, by reading nothing from it meanwhile.

    Args:
        messages_per_s: the rate; None is no limit.
    """

    def __init__(self, messages_per_s: int | None) -> None:
        self._rate = messages_per_s
        self._paid_until_s = 0.0
        self._stopped = Signal()

    def note(self, messages: int) -> None:
        """So many messages have come."""
        if self._rate is not None:
            now_s = asyncio.get_running_loop().time()
            self._paid_until_s = max(self._paid_until_s, now_s) + messages / self._rate

    async def wait(self) -> None:
        """Waits while too many have come."""
        if self._rate is not None:
            wait_s = self._paid_until_s - BURST_S - asyncio.get_running_loop().time()
            if wait_s > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._stopped.wait()

    def stop(self) -> None:
        """It is gone: nobody waits any more."""
        self._stopped.set()
