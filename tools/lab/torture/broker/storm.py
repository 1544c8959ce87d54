"""A generator of the storm: ``python -m tools.lab.torture.broker.storm TASK``, TASK as JSON, result as JSON.

It plays sessions with a broker, many at once, and judges each.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import count

import uvloop

from tools.lab.testing.lines import Line, Lines, SerialEnd, Ways
from tools.lab.torture.broker.packets import Pools
from tools.lab.torture.broker.play import Play
from tools.lab.torture.broker.session import SERIAL_FROM, StormSession, draw

SLOTS = 8
FAILURES_MAX = 5


@dataclass
class Task:
    """Sessions from number ``first`` on, of ``packets`` in all; ``serial`` is the path of a serial line's far end."""

    ways: list[object]
    seed: int
    first: int
    packets: int
    serial: str


@dataclass
class Report:
    """The played sessions. ``failures`` are pairs of session number and the broker's fault."""

    packets: int = 0
    sessions: int = 0
    seconds: float = 0.0
    lines: dict[str, int] = field(default_factory=dict)
    failures: list[tuple[int, str]] = field(default_factory=list)


class Storm:
    """Plays a task."""

    def __init__(self, task: Task) -> None:
        self.report = Report()
        self._task = task
        self._pools = Pools(task.seed)
        self._lines = Lines(Ways(*task.ways))  # type: ignore[arg-type]
        self._serial: SerialEnd

    async def run(self) -> Report:
        """Returns what happened."""
        started = time.monotonic()
        self._serial = SerialEnd(self._task.serial, self._task.first & 0xFFFF_FFFF)
        numbers = count(self._task.first)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._play_all(count(self._task.first + SERIAL_FROM), group))
            for _ in range(SLOTS):
                group.create_task(self._play_all(numbers, group))
        self._serial.unplug()
        self.report.seconds = time.monotonic() - started
        return self.report

    async def _play_all(self, numbers: Iterator[int], group: asyncio.TaskGroup) -> None:
        """Sessions one after the other, until all slots together have sent enough."""
        report = self.report
        while report.packets < self._task.packets and len(report.failures) < FAILURES_MAX:
            session = draw(self._pools, self._task.seed, next(numbers))
            if session.manner == "half-open" and session.line != "serial":
                group.create_task(self._play(session))  # it waits until the broker ends it, and must not block a slot
            else:
                await self._play(session)

    async def _play(self, session: StormSession) -> None:
        report, play = self.report, Play(session, self._pools)
        found = await play.run(self._open)
        report.sessions += 1
        report.packets += play.packets_sent
        report.lines[session.line] = report.lines.get(session.line, 0) + play.packets_sent
        report.failures += [(session.number, fault) for fault in found]

    async def _open(self, session: StormSession) -> Line:
        if session.line == "serial":
            return await self._serial.open()
        return await self._lines.open(session.line, is_raw=session.manner == "noise")


if __name__ == "__main__":
    print(json.dumps(asdict(uvloop.run(Storm(Task(**json.loads(sys.argv[1]))).run()))))
