"""What systemd is told of a process: that it is ready, that it ends, and meanwhile that it still turns.

https://www.freedesktop.org/software/systemd/man/sd_notify.html. Without a service manager nobody is told anything.
"""

import asyncio
import contextlib
import os
import socket

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"


def tell(what: str) -> None:
    """Tells the service manager, if there is one that wants to know."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address.startswith("@"):
        address = "\0" + address[1:]
    if address:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.sendto(what.encode(), address)


async def stay_watched() -> None:
    """Says twice within the time that the watchdog allows that the event loop turns; for ever."""
    allowed_us = int(os.environ.get("WATCHDOG_USEC", "0"))
    while allowed_us:
        tell(ALIVE)
        await asyncio.sleep(allowed_us / 2 / 1_000_000)
