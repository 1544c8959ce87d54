"""Devices under torture and their broker; when all is over, what the broker holds is compared with what they stored."""

import asyncio
import random
from pathlib import Path

from tools.micropython import MicroPython
from tools.torture.device_brokers import BROKERS, Commander, Reader
from tools.torture.device_kinds import KINDS
from tools.torture.device_life import Tormented
from tools.torture.device_outcome import Outcome, judge

BROKER_LIFE_S = (0.2, 1.0)
COMMAND_PAUSE_S = 0.3  # at most
COMMANDS_AT_ONCE = 4  # to one device; fewer than its Receive Maximum, which mosquitto forgets in a restart


async def torture(vm: MicroPython, folder: Path, broker_name: str, qos: int, cuts: int, seed: int) -> Outcome:
    """Cuts power, lines and broker at least `cuts` times in all, then lets the devices finish in peace.

    Raises ProcessFailed, OSError or MosquittoUnavailable where the broker does not run.
    """
    outcome = Outcome(broker_name, qos)
    chance = random.Random(seed)
    broker = BROKERS[broker_name](folder)
    await broker.start()
    try:
        reader = Reader(broker.port, qos)
        await asyncio.to_thread(reader.subscribe)
        devices = [
            Tormented(vm, folder, kind, broker.port, qos, random.Random(chance.getrandbits(64))) for kind in KINDS
        ]
        commander = await asyncio.to_thread(Commander, broker.port)
        enough = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for device in devices:
                await device.open()
                group.create_task(device.live_until(enough))
            if qos == 2:
                group.create_task(_command(commander, devices, random.Random(chance.getrandbits(64)), enough))
            while outcome.broker_cuts + sum(device.cuts for device in devices) < cuts:
                await asyncio.sleep(chance.uniform(*BROKER_LIFE_S))
                await broker.interrupt()
                outcome.broker_cuts += 1
            enough.set()
        await asyncio.to_thread(commander.close)
        await asyncio.gather(*(device.drain() for device in devices))
        judge(outcome, devices, await asyncio.to_thread(reader.read))
    finally:
        await broker.stop()
    return outcome


async def _command(commander: Commander, devices: list[Tormented], chance: random.Random, end: asyncio.Event) -> None:
    """To devices that have a subscription, as long as not too many are on their way to one."""
    while not end.is_set():
        await asyncio.sleep(chance.uniform(0, COMMAND_PAUSE_S))
        device = chance.choice(devices)
        if device.witness.has_subscribed and len(device.unanswered) < COMMANDS_AT_ONCE:
            device.commands.append(commander.send(device.command_topic))
