"""How fast one client may publish."""

import asyncio

BURST_S = 1.0  # so much of its rate a client may send at once


class Pace:
    """Holds back whoever is faster than a rate, by reading nothing from it meanwhile.

    Args:
        messages_per_s: the rate; None is no limit.
    """

    def __init__(self, messages_per_s: int | None) -> None:
        self._rate = messages_per_s
        self._paid_until_s = 0.0

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
                await asyncio.sleep(wait_s)
