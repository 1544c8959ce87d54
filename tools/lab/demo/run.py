"""One run of the demo: readings flow, faults happen, the site drains, the job brings the readings into tables."""

import asyncio
from collections.abc import Awaitable, Callable

from cloud import read_manifest
from tools.lab.demo.faults import Fault
from tools.lab.demo.site import Site
from tools.lab.demo.timeline import Timeline
from tools.lab.journal import Made, read_journal
from tools.lab.testing.process import ProcessFailed

LOOK_EVERY_S = 0.1
STALLED_AFTER_S = 90.0  # Spark may be starting


class Run:
    """Runs a site until its devices have made `readings` readings and each fault has happened, in order. Between
    ``open`` and ``close`` it records the timeline."""

    def __init__(self, site: Site, readings: int, faults: list[Fault], say: Callable[[str], None]) -> None:
        self._site = site
        self._readings = readings
        self._faults = faults
        self._say = say
        self.flow_s = 0.0
        self.timeline = Timeline(self._count, site.central, f"{site.topic_root}/#")
        self._manifests: set[str] = set()
        self._landed: set[tuple[str, int, int]] = set()

    async def open(self) -> None:
        """Starts the site. The timeline begins before the devices do, or it would miss their first readings."""
        await self._site.open_central()
        await self.timeline.open()
        await self._site.open()

    async def close(self) -> None:
        await self.timeline.close()
        await self._site.close()

    def made(self) -> list[Made]:
        """Returns the devices' counts so far."""
        journals = self._site.journals.items()
        return [made for device, path in journals for made in read_journal(self._site.origins[device], path)]

    @property
    def bytes_sent(self) -> int:
        """The bytes that the gateway has sent to the central broker."""
        return self._site.bytes_sent

    async def flow(self) -> None:
        """Returns when the devices have made all readings and every fault has happened."""
        started = asyncio.get_running_loop().time()
        waiting = list(self._faults)

        async def strike() -> bool:
            made = sum(message.readings for message in self.made())
            if waiting and made >= waiting[0].at_share * self._readings:
                await self._break(waiting.pop(0))
            return made >= self._readings and not waiting

        await self._until(strike, lambda: sum(message.readings for message in self.made()))
        self.flow_s = asyncio.get_running_loop().time() - started

    async def _break(self, fault: Fault) -> None:
        now_s = asyncio.get_running_loop().time
        struck_s = now_s()
        await fault.strike(self._site, self._say)
        self.timeline.note_outage(fault.name, struck_s, now_s())

    async def drain(self) -> None:
        """Returns when every message that a device counted is in a landing file."""

        async def drained() -> bool:
            return not self._missing_in_landing()

        await self._until(drained, lambda: len(self._missing_in_landing()))

    async def ingest(self) -> None:
        """Returns when the job has done a whole run on the files that are there. Raises ProcessFailed."""
        enough = self._site.job_runs() + 2

        async def is_done() -> bool:
            return self._site.job_runs() >= enough

        await self._until(is_done, self._site.job_runs)

    @property
    def sent_again(self) -> int:
        """How many messages the gateway has sent again by itself."""
        return self._site.sent_again()

    def _missing_in_landing(self) -> set[tuple[str, int, int]]:
        self._look_for_landed()
        return {(made.origin, made.epoch, made.seq) for made in self.made()} - self._landed

    def _count(self) -> tuple[int, int]:
        """Returns the readings made, and landed."""
        made = self.made()
        self._look_for_landed()
        landed = sum(one.readings for one in made if (one.origin, one.epoch, one.seq) in self._landed)
        return sum(one.readings for one in made), landed

    def _look_for_landed(self) -> None:
        """Reads each manifest once: it never changes."""
        for path in self._site.landing.glob("[!.]*.json"):
            if path.name not in self._manifests:
                self._manifests.add(path.name)
                for origin, epoch, low, high in read_manifest(path).intervals:
                    self._landed |= {(origin, epoch, seq) for seq in range(low, high + 1)}

    async def _until(self, done: Callable[[], Awaitable[bool]], progress: Callable[[], int]) -> None:
        """Waits until it is done. Raises ProcessFailed if a process ends, or nothing moves for long."""
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
