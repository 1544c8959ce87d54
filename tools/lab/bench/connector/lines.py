"""Lines of text at a serial line's full pace, to a gateway that runs on, or is killed again and again."""

import asyncio
import contextlib
import json
import os
import random
import time
import tty
from dataclasses import dataclass, field
from pathlib import Path

from tools.lab.testing.client import Client
from tools.lab.testing.gateway import Gateway

BAUD = 115_200
CHARACTER_BITS = 10
STEP_S = 0.01
CONFIG = '[[connector]]\nkind = "line"\nname = "counter"\nport = "{port}"\nbaud = 115200\n'
BEGIN_S = 1.5  # until a gateway that has just begun is in step with the line


@dataclass
class Sent:
    """The lines that a device has sent: when each went out."""

    times: list[tuple[float, float]] = field(default_factory=list)


class Counter:
    """A device that sends numbered lines without a pause, at BAUD."""

    def __init__(self) -> None:
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)
        os.set_blocking(self._master, False)
        self.path = os.ttyname(self._slave)
        self.sent = Sent()

    def close(self) -> None:
        for descriptor in (self._master, self._slave):
            os.close(descriptor)

    async def run(self) -> None:
        """Sends until it is cancelled."""
        due = time.monotonic()
        while True:
            due += STEP_S
            budget = BAUD / CHARACTER_BITS * STEP_S
            while budget > 0:
                line = b"%010d\n" % len(self.sent.times)
                before = time.time()
                with contextlib.suppress(BlockingIOError):  # no program reads: the bytes are lost, as on a UART
                    os.write(self._master, line)
                self.sent.times.append((before, time.time()))
                budget -= len(line)
            await asyncio.sleep(max(0.0, due - time.monotonic()))


@dataclass
class Outcome:
    """What became of the lines. ``uncovered`` are lost lines that no gap covers."""

    sent: int
    stored: int
    twice: int
    lost: int
    uncovered: int
    kills: int


async def run(folder: Path, seconds: float, kills: int, seed: int) -> Outcome:
    """Sends lines for some seconds, or until a gateway was killed as often as that, and counts what was stored."""
    dice, counter = random.Random(seed), Counter()
    folder.mkdir()
    gateway = Gateway(folder, CONFIG.format(port=counter.path))
    await gateway.up()
    client = await Client("watcher").connect(gateway.port)
    await client.subscribe("#")
    await client.disconnect()
    await asyncio.sleep(BEGIN_S)
    sending = asyncio.create_task(counter.run())
    await asyncio.sleep(BEGIN_S if kills else seconds)
    for _ in range(kills):
        await asyncio.sleep(dice.random())
        await gateway.interrupt()
        await asyncio.sleep(BEGIN_S * dice.random())
    if kills:
        await asyncio.sleep(BEGIN_S)
    sending.cancel()
    await asyncio.sleep(1.0)
    numbers, gaps = await _stored(gateway)
    await gateway.down()
    counter.close()
    return _outcome(counter.sent, numbers, gaps, kills)


async def _stored(gateway: Gateway) -> tuple[list[int], list[tuple[float, float]]]:
    """All lines and gaps that wait for the watcher."""
    client = await Client("watcher", clean_start=False).connect(gateway.port)
    numbers: list[int] = []
    gaps: list[tuple[float, float]] = []
    with contextlib.suppress(TimeoutError):
        while True:
            packet = await asyncio.wait_for(client.receive(), 3.0)
            found = {one["n"]: one.get("v") for one in json.loads(packet.payload)}
            if "gap.from" in found:
                gaps.append((found["gap.from"], found["gap.to"]))
            elif isinstance(found.get("line"), int):
                numbers.append(found["line"])
    client.cut()
    return numbers, gaps


def _outcome(sent: Sent, numbers: list[int], gaps: list[tuple[float, float]], kills: int) -> Outcome:
    stored = set(numbers)
    lost = [number for number in range(len(sent.times)) if number not in stored]
    uncovered = 0
    for number in lost:
        before, after = sent.times[number]  # it went out at some moment between
        uncovered += not any(first <= after and before <= last for first, last in gaps)
    return Outcome(len(sent.times), len(stored), len(numbers) - len(stored), len(lost), uncovered, kills)
