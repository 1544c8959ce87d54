"""The faults at each hop. Each takes the site and its own chance, and returns when it is over."""

import asyncio
import random

from tools.lab.torture import faults
from tools.lab.torture.strikes import Faults, faults_in
from tools.lab.torture.whole_way.senders import CENTRAL, KINDS, LIMITED
from tools.lab.torture.whole_way.site import DEVICE_QOS, GATEWAYS, JOB, LANDERS, LIMITED_AGE_S, ROUTES, WholeWay

DOWN_S = (0.05, 0.8)
SILENT_S = (0.3, 4.0)  # the keep alive of a route is 2 s
FROZEN_S = (0.2, 3.0)
CUT_BYTES_MAX = 60_000
FULL_S = (0.5, 2.0)
FULL_BYTES = (0, 4096, 65_536)
SENDERS = tuple(kind.name for kind in KINDS)


async def _cut(site: WholeWay, chance: random.Random, names: tuple[str, ...]) -> None:
    await faults.flap(site.links[chance.choice(names)], chance, CUT_BYTES_MAX, DOWN_S, times=(1, 1))


async def _silence(site: WholeWay, chance: random.Random, names: tuple[str, ...]) -> None:
    """The line is half open: nothing comes through one way or both, and then it breaks in half of the cases."""
    link = site.links[chance.choice(names)]
    await faults.hush(link, chance, SILENT_S)
    if chance.random() < 0.5:
        await link.cut()
        await link.open()


async def cut_sender(site: WholeWay, chance: random.Random) -> None:
    await _cut(site, chance, SENDERS)


async def cut_route(site: WholeWay, chance: random.Random) -> None:
    await _cut(site, chance, tuple(ROUTES))


async def cut_lander(site: WholeWay, chance: random.Random) -> None:
    await _cut(site, chance, LANDERS)


async def silence_sender(site: WholeWay, chance: random.Random) -> None:
    await _silence(site, chance, SENDERS)


async def silence_route(site: WholeWay, chance: random.Random) -> None:
    await _silence(site, chance, tuple(ROUTES))


async def silence_lander(site: WholeWay, chance: random.Random) -> None:
    await _silence(site, chance, LANDERS)


async def unplug_device(site: WholeWay, chance: random.Random) -> None:
    """The serial line of a device carries nothing, or noise."""
    line = site.lines[chance.choice(tuple(DEVICE_QOS))]
    line.noisy = chance.random() < 0.5
    line.unplugged = not line.noisy
    await asyncio.sleep(chance.uniform(*SILENT_S))
    line.noisy = line.unplugged = False


async def _kill(site: WholeWay, chance: random.Random, names: tuple[str, ...]) -> None:
    await faults.kill(site.processes[chance.choice(names)], chance, DOWN_S)


async def kill_device(site: WholeWay, chance: random.Random) -> None:
    """The power of a device is cut: SIGKILL of its VM. Its flash stays."""
    await _kill(site, chance, tuple(DEVICE_QOS))


async def kill_gateway(site: WholeWay, chance: random.Random) -> None:
    await _kill(site, chance, GATEWAYS)


async def kill_lander(site: WholeWay, chance: random.Random) -> None:
    await _kill(site, chance, LANDERS)


async def kill_job(site: WholeWay, chance: random.Random) -> None:
    """The driver is killed, with its Java or without."""
    if chance.random() < 0.5:
        site.kill_with_children(JOB)
    await faults.kill(site.processes[JOB], chance, DOWN_S)


async def restart_broker(site: WholeWay, chance: random.Random) -> None:
    """The central broker is stopped and started. mosquitto acknowledges before it writes, so it cannot be killed."""
    await faults.restart(site.central, chance, DOWN_S)


async def freeze(site: WholeWay, chance: random.Random) -> None:
    """A process stands still (SIGSTOP) and goes on."""
    name = chance.choice((*GATEWAYS, *LANDERS, *DEVICE_QOS, CENTRAL))
    await faults.freeze(site.processes[name], chance, FROZEN_S)


async def full_disk(site: WholeWay, chance: random.Random) -> None:
    """The disk of a gateway is full for a while."""
    gateway = site.processes[chance.choice(GATEWAYS)]
    gateway.limit_files(chance.choice(FULL_BYTES))
    await asyncio.sleep(chance.uniform(*FULL_S))
    gateway.limit_files(-1)


async def outage(site: WholeWay, chance: random.Random) -> None:
    """The route that may drop is without its line for so long that messages expire or are too many."""
    await site.links[LIMITED].cut()
    await asyncio.sleep(LIMITED_AGE_S + chance.uniform(1, 3))
    await site.links[LIMITED].open()


FAULTS: Faults[WholeWay] = faults_in(globals())
