"""One run of the demo: readings flow, faults strike, the site drains, the job brings the readings into tables."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from cloud import manifest
from tools.demo.faults import Fault
from tools.demo.journal import Made, read_journal
from tools.demo.process import Process, ProcessFailed
from tools.demo.site import Site, holdfast

LOOK_EVERY_S = 0.1
STALLED_AFTER_S = 30.0


class Run:
    """Drives a site that is open.

    Args:
        site: the processes.
        readings: how many readings the devices shall make.
        faults: what breaks, in order.
        say: tells the user what happens.
    """

    def __init__(self, site: Site, readings: int, faults: list[Fault], say: Callable[[str], None]) -> None:
        self._site = site
        self._readings = readings
        self._faults = faults
        self._say = say
        self.flow_s = 0.0

    def made(self) -> list[Made]:
        """What the devices have counted so far."""
        journals = self._site.journals.items()
        return [made for device, path in journals for made in read_journal(self._site.origins[device], path)]

    async def flow(self) -> None:
        """Returns when the devices have made all readings and every fault has struck."""
        started = asyncio.get_running_loop().time()
        waiting = list(self._faults)

        async def strike() -> bool:
            made = sum(message.readings for message in self.made())
            if waiting and made >= waiting[0].at_share * self._readings:
                await waiting.pop(0).strike(self._site, self._say)
            return made >= self._readings and not waiting

        await self._until(strike, lambda: sum(message.readings for message in self.made()))
        self.flow_s = asyncio.get_running_loop().time() - started

    async def drain(self) -> None:
        """Returns when every message that a device counted is in a landing file."""

        async def drained() -> bool:
            return not self._missing_in_landing()

        await self._until(drained, lambda: len(self._missing_in_landing()))

    async def ingest(self, tables: Path) -> dict[str, Any]:
        """Runs the Spark job once and returns what it says of the rows.

        Raises:
            ProcessFailed: the job ended with an error.
        """
        arguments = ("--landing", str(self._site.landing), "--tables", str(tables), "--json")
        job = Process("job", holdfast("cloud", "ingest", *arguments), self._site.folder / "job.log")
        try:
            await job.start()
            code, lines = await job.ended()
        finally:
            await job.stop()
        if code != 0:
            raise ProcessFailed("\n  | ".join([f"the job ended with exit code {code}", *lines[-12:]]))
        counts: dict[str, Any] = json.loads(lines[-1])
        return counts

    def _missing_in_landing(self) -> set[tuple[str, int, int]]:
        missing = {(made.origin, made.epoch, made.seq) for made in self.made()}
        for path in self._site.landing.glob("[!.]*.json"):
            for origin, epoch, low, high in manifest.read(path).intervals:
                missing -= {(origin, epoch, seq) for seq in range(low, high + 1)}
        return missing

    async def _until(self, done: Callable[[], Awaitable[bool]], progress: Callable[[], int]) -> None:
        """Looks again and again until done; a site on which nothing moves for long is named as such."""
        loop = asyncio.get_running_loop()
        last, moved_at = progress(), loop.time()
        while not await done():
            if ended := self._site.failed():
                raise ProcessFailed(f"{', '.join(ended)} ended on its own; see its log in {self._site.folder}")
            if (now := progress()) != last:
                last, moved_at = now, loop.time()
            elif loop.time() - moved_at > STALLED_AFTER_S:
                raise ProcessFailed(f"nothing moved for {STALLED_AFTER_S:g} s; see the logs in {self._site.folder}")
            await asyncio.sleep(LOOK_EVERY_S)
