"""The faults that the demo causes while readings flow."""

import asyncio
import random
import shutil
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tools.lab.demo.site import CENTRAL, DEVICES, GATEWAY, LANDER, Site
from tools.lab.testing.process import Process

Say = Callable[[str], None]


class Fault(NamedTuple):
    """A fault, which begins when this share (0 to 1) of the readings has been made; the chart shows its name."""

    at_share: float
    strike: Callable[[Site, Say], Awaitable[None]]
    name: str


def draw_faults(chance: random.Random) -> list[Fault]:
    """Returns one fault of each kind in order; ``chance`` decides the moments, the lengths and the devices."""
    cut_s, gateway_down_s, device_down_s = chance.uniform(3, 5), chance.uniform(0.3, 1.0), chance.uniform(0.3, 1.0)
    device = chance.choice(DEVICES)

    async def cut_the_link(site: Site, say: Say) -> None:
        say(f"the link between gateway and central broker is cut for {cut_s:.1f} s")
        await site.link.cut()
        await asyncio.sleep(cut_s)
        await site.link.open()
        say("the link is back")

    async def kill_the_gateway(site: Site, say: Say) -> None:
        say("the gateway is killed (SIGKILL)")
        await _kill(site.processes[GATEWAY], gateway_down_s)
        say("the gateway runs again, on the store it left")

    async def cut_the_power(site: Site, say: Say) -> None:
        say(f"the power of device {device} is cut (SIGKILL of its VM; its flash stays)")
        await _kill(site.processes[device], device_down_s)
        say(f"device {device} runs again, on the flash it left")

    strikes = {
        cut_the_link: "link to the central broker cut",
        kill_the_gateway: "gateway killed",
        cut_the_power: f"power of {device} cut",
    }
    shares = (chance.uniform(0.10, 0.20), chance.uniform(0.45, 0.55), chance.uniform(0.70, 0.80))
    return [Fault(share, strike, name) for share, (strike, name) in zip(shares, strikes.items(), strict=True)]


def draw_loss(chance: random.Random) -> Fault:
    """Returns the fault behind the others: the central broker, the demo's own, loses its store with messages in it."""
    gather_s, down_s = chance.uniform(1.5, 2.5), chance.uniform(0.3, 1.0)

    async def delete_the_store(site: Site, say: Say) -> None:
        say(f"the lander is stopped for {gather_s:.1f} s: messages gather at the central broker")
        await site.processes[LANDER].down()
        await asyncio.sleep(gather_s)
        say("the central broker is killed, and its store deleted with these messages")
        await asyncio.to_thread(site.processes[CENTRAL].kill)
        shutil.rmtree(site.central_store)
        await asyncio.sleep(down_s)
        await site.processes[CENTRAL].up()
        await site.processes[LANDER].up()
        say("the central broker runs again, on an empty store, and the lander too")

    return Fault(chance.uniform(0.84, 0.88), delete_the_store, "store of the central broker deleted")


async def _kill(process: Process, down_s: float) -> None:
    process.kill()
    await asyncio.sleep(down_s)
    await process.up()
