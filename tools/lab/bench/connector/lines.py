"""Lines of text at a serial line's full pace, to a gateway that runs on, or is killed again and again."""

import asyncio
import contextlib
import json
import os
import random
import time
import tty
from array import array
from dataclasses import dataclass, field
from pathlib import Path

from tools.lab.testing.client import Client
from tools.lab.testing.gateway import Gateway

BAUD = 115_200
CHARACTER_BITS = 10
STEP_S = 0.01
LATE_MAX_S = 0.1
QUIET_S = 3.0  # behind the last message
CONFIG = '[[connector]]\nkind = "line"\nname = "counter"\nport = "{port}"\nbaud = 115200\n'
BEGIN_S = 1.5  # until a gateway that has just begun is in step with the line


@dataclass
class Sent:
    """The lines that a device has sent: each went out between two Unix times."""

    before: "array[float]" = field(default_factory=lambda: array("d"))
    after: "array[float]" = field(default_factory=lambda: array("d"))


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
        """Sends until it is cancelled. A pause of this process delays lines, as no line is faster than BAUD."""
        due = time.monotonic()
        while True:
            due = max(due, time.monotonic() - LATE_MAX_S) + STEP_S
            budget = BAUD / CHARACTER_BITS * STEP_S
            while budget > 0:
                line = b"%010d\n" % len(self.sent.before)
                before = time.time()
                with contextlib.suppress(BlockingIOError):  # no program reads: the bytes are lost, as on a UART
                    os.write(self._master, line)
                self.sent.before.append(before)
                self.sent.after.append(time.time())
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
    watcher = await Client("watcher").connect(gateway.port)
    await watcher.subscribe("#")
    if kills:
        await watcher.disconnect()
    await asyncio.sleep(BEGIN_S)
    sending = asyncio.create_task(counter.run())
    await asyncio.sleep(BEGIN_S if kills else 0)
    reading = asyncio.create_task(_read(watcher, sending)) if not kills else None
    for _ in range(kills):
        await asyncio.sleep(dice.random())
        await gateway.interrupt()
        await asyncio.sleep(BEGIN_S * dice.random())
    await asyncio.sleep(BEGIN_S if kills else seconds)
    sending.cancel()
    await asyncio.sleep(1.0)
    if reading is None:
        watcher = await Client("watcher", clean_start=False).connect(gateway.port)
        numbers, gaps = await _read(watcher, sending)
    else:
        numbers, gaps = await reading
    watcher.cut()
    await gateway.down()
    counter.close()
    return _outcome(counter.sent, numbers, gaps, kills)


async def _read(client: Client, sending: "asyncio.Task[None]") -> tuple["array[int]", list[tuple[float, float]]]:
    """Returns all lines and gaps that come to the watcher until the sending has ended, and no more come."""
    numbers = array("q")
    gaps: list[tuple[float, float]] = []
    while True:
        try:
            async with asyncio.timeout(QUIET_S):
                packet = await client.receive()
        except TimeoutError:
            if sending.done():
                return numbers, gaps
            continue
        found = {one["n"]: one.get("v") for one in json.loads(packet.payload)}
        if "gap.from" in found:
            gaps.append((found["gap.from"], found["gap.to"]))
        elif isinstance(found.get("line"), int):
            numbers.append(found["line"])


def _outcome(sent: Sent, numbers: "array[int]", gaps: list[tuple[float, float]], kills: int) -> Outcome:
    stored = bytearray(len(sent.before))
    for number in numbers:
        stored[number] = 1
    lost = [number for number, is_stored in enumerate(stored) if not is_stored]
    uncovered = 0
    for number in lost:
        uncovered += not any(first <= sent.after[number] and sent.before[number] <= last for first, last in gaps)
    found = sum(stored)
    return Outcome(len(stored), found, len(numbers) - found, len(lost), uncovered, kills)
