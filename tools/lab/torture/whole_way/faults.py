"""The faults at each hop. Each takes the site and its own chance, and returns when it is over."""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable

from tools.lab.torture.whole_way.senders import CENTRAL, KINDS, LIMITED
from tools.lab.torture.whole_way.site import DEVICE_QOS, GATEWAYS, JOB, LANDERS, LIMITED_AGE_S, ROUTES, Site

NEVER_S = 3600.0
DOWN_S = (0.05, 0.8)
SILENT_S = (0.3, 4.0)  # the keep alive of a route is 2 s
FROZEN_S = (0.2, 3.0)
CUT_BYTES_MAX = 60_000
FULL_S = (0.5, 2.0)
FULL_BYTES = (0, 4096, 65_536)
SENDERS = tuple(kind.name for kind in KINDS)

Fault = Callable[[Site, random.Random], Awaitable[None]]


async def _cut(site: Site, chance: random.Random, names: tuple[str, ...]) -> None:
    """The line breaks after any byte, and stays away for a moment."""
    link = site.links[chance.choice(names)]
    link.break_after(chance.randint(1, CUT_BYTES_MAX))
    await asyncio.sleep(chance.uniform(*DOWN_S))
    link.break_after(None)
    await link.cut()
    await asyncio.sleep(chance.uniform(*DOWN_S))
    await link.open()


async def _silence(site: Site, chance: random.Random, names: tuple[str, ...]) -> None:
    """The line is half open: nothing comes through one way or both, and then it breaks in half of the cases."""
    link = site.links[chance.choice(names)]
    ways = chance.choice(((True,), (False,), (True, False)))
    await link.slow(chance.uniform(*SILENT_S), NEVER_S, ways=ways)
    if chance.random() < 0.5:
        await link.cut()
        await link.open()


async def cut_sender(site: Site, chance: random.Random) -> None:
    await _cut(site, chance, SENDERS)


async def cut_route(site: Site, chance: random.Random) -> None:
    await _cut(site, chance, tuple(ROUTES))


async def cut_lander(site: Site, chance: random.Random) -> None:
    await _cut(site, chance, LANDERS)


async def silence_sender(site: Site, chance: random.Random) -> None:
    await _silence(site, chance, SENDERS)


async def silence_route(site: Site, chance: random.Random) -> None:
    await _silence(site, chance, tuple(ROUTES))


async def silence_lander(site: Site, chance: random.Random) -> None:
    await _silence(site, chance, LANDERS)


async def unplug_device(site: Site, chance: random.Random) -> None:
    """The serial line of a device carries nothing, or noise."""
    line = site.lines[chance.choice(tuple(DEVICE_QOS))]
    line.noisy = chance.random() < 0.5
    line.unplugged = not line.noisy
    await asyncio.sleep(chance.uniform(*SILENT_S))
    line.noisy = line.unplugged = False


async def _kill(site: Site, chance: random.Random, names: tuple[str, ...]) -> None:
    name = chance.choice(names)
    site.kill(name)
    await asyncio.sleep(chance.uniform(*DOWN_S))
    await site.start(name)


async def kill_device(site: Site, chance: random.Random) -> None:
    """The power of a device is cut: SIGKILL of its VM. Its flash stays."""
    await _kill(site, chance, tuple(DEVICE_QOS))


async def kill_gateway(site: Site, chance: random.Random) -> None:
    await _kill(site, chance, GATEWAYS)


async def kill_lander(site: Site, chance: random.Random) -> None:
    await _kill(site, chance, LANDERS)


async def kill_job(site: Site, chance: random.Random) -> None:
    """The driver is killed, with its Java or without."""
    (site.kill_with_children if chance.random() < 0.5 else site.kill)(JOB)
    await asyncio.sleep(chance.uniform(*DOWN_S))
    await site.start(JOB)


async def restart_broker(site: Site, chance: random.Random) -> None:
    """The central broker is stopped and started. mosquitto acknowledges before it writes, so it cannot be killed."""
    await asyncio.to_thread(site.central.stop)
    await asyncio.sleep(chance.uniform(*DOWN_S))
    site.central.start()


async def freeze(site: Site, chance: random.Random) -> None:
    """A process stands still (SIGSTOP) and goes on."""
    name = chance.choice((*GATEWAYS, *LANDERS, *DEVICE_QOS, CENTRAL))
    target = site.central if name == CENTRAL else site.processes[name]
    target.signal(signal.SIGSTOP)
    await asyncio.sleep(chance.uniform(*FROZEN_S))
    target.signal(signal.SIGCONT)


async def full_disk(site: Site, chance: random.Random) -> None:
    """The disk of a gateway is full for a while."""
    name = chance.choice(GATEWAYS)
    site.limit_files(name, chance.choice(FULL_BYTES))
    await asyncio.sleep(chance.uniform(*FULL_S))
    site.limit_files(name, -1)


async def outage(site: Site, chance: random.Random) -> None:
    """The route that may drop is without its line for so long that messages expire or are too many."""
    await site.links[LIMITED].cut()
    await asyncio.sleep(LIMITED_AGE_S + chance.uniform(1, 3))
    await site.links[LIMITED].open()


FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        outage,
        kill_gateway,
        kill_lander,
        restart_broker,
        kill_device,
        cut_route,
        cut_lander,
        cut_sender,
        kill_job,
        silence_route,
        silence_lander,
        silence_sender,
        unplug_device,
        freeze,
        full_disk,
    )
}
