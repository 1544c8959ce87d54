"""A run: readings flow, faults strike as the seed says, all comes to rest, and the tables are recounted."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from cloud import NoTables
from tools.lab.testing.gateway import Gateway
from tools.lab.torture.strikes import Strike, draw_strikes
from tools.lab.torture.whole_way.faults import FAULTS
from tools.lab.torture.whole_way.oracle import Verdict, total
from tools.lab.torture.whole_way.recount import Recount, last_seen
from tools.lab.torture.whole_way.senders import Sender
from tools.lab.torture.whole_way.site import DEVICE_QOS, GATEWAYS, JOB, LANDERS, WholeWay

FAULT_S = 2.5  # of the flow, for each fault
LOOK_S = 0.1
RECOUNT_S = 2.0
STALLED_S = 90.0
STALLED_RUNS = 3  # of the job that change nothing
JOB_S = 900.0  # for two runs of the job
READINGS_PER_S = 500  # that a job takes in at least, where many others use the machine
SAY_EVERY = 10  # faults
MILLION = 1_000_000
AT_ONCE = 0.3  # the share of faults that strike together with the next one


def draw(seed: int, faults: int) -> list[Strike]:
    """Draws the faults of a run in their order, some of them at the same moment. They strike `at` millionths of what
    is sent."""
    chance = random.Random(seed)
    strikes: list[Strike] = []
    for one in draw_strikes(chance, list(FAULTS), faults, MILLION):
        together = strikes and chance.random() < AT_ONCE and strikes[-1].fault != one.fault
        strikes.append(one._replace(at=strikes[-1].at) if together else one)
    return strikes


class Run:
    """One run. After `run`, `verdicts` and `violations` say what came of it.

    Args:
        folder: an empty folder.
        readings: how many the publishers make, about.
        faults: how many strike.
        say: takes a line about its progress.
    """

    def __init__(self, folder: Path, readings: int, faults: int, seed: int, say: Callable[[str], None]) -> None:
        self.verdicts: list[Verdict] = []
        self.violations: list[str] = []
        self.struck: Counter[str] = Counter()
        self.gaps: Counter[str] = Counter()
        self._say = say
        self._strikes = draw(seed, faults)
        self._flow_s = FAULT_S * faults
        self._job_s = JOB_S + readings / READINGS_PER_S
        self._site = WholeWay(folder, readings, self._flow_s, seed)

    @property
    def total(self) -> Verdict:
        """All counts together."""
        return total(self.verdicts)

    @property
    def holds(self) -> bool:
        return bool(self.verdicts) and self.total.holds and not self.violations

    async def run(self) -> None:
        """Raises ProcessFailed, MosquittoUnavailable, OSError."""
        site = self._site
        try:
            await site.open()
            self._say(f"all runs; readings flow for {self._flow_s:.0f} s or more, {len(self._strikes)} faults strike")
            await self._flow()
            self._say("all readings are acknowledged; what is on its way comes to rest")
            await self._rest()
            await self._end()
        finally:
            await site.close()
        for process in site.processes.values():
            if isinstance(process, Gateway):
                self.violations += process.complaints()
        self.violations += site.violations

    async def _flow(self) -> None:
        site = self._site
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(sender.run()) for sender in site.senders]
            pace = group.create_task(self._pace())
            strikes = list(self._strikes)
            while strikes:
                at = strikes[0].at
                now = [one for one in strikes if one.at == at]
                strikes = strikes[len(now) :]
                while self._share() * MILLION < at:
                    await asyncio.sleep(LOOK_S)
                await asyncio.gather(*(self._strike(one) for one in {one.fault: one for one in now}.values()))
                await site.revive()
            await pace
            while not all(task.done() for task in running) or not site.are_devices_done():
                await asyncio.sleep(LOOK_S)
                await site.revive()

    async def _pace(self) -> None:
        """Lets the senders send evenly over the time of the flow."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        while (share := (loop.time() - begun_s) / self._flow_s) < 1:
            for sender in self._site.senders:
                sender.allow(int(share * sender.count) + 1)
            await asyncio.sleep(LOOK_S)
        for sender in self._site.senders:
            sender.allow(sender.count)

    def _share(self) -> float:
        senders = self._site.senders
        return sum(len(one.accepted) / one.count for one in senders) / len(senders)

    async def _strike(self, strike: Strike) -> None:
        await FAULTS[strike.fault](self._site, random.Random(strike.seed))
        self.struck[strike.fault] += 1
        if (count := self.struck.total()) % SAY_EVERY == 0:
            sent = sum(len(sender.accepted) for sender in self._site.senders)
            self._say(f"{count} faults, {sent:,} packets acknowledged")

    async def _rest(self) -> None:
        """Returns when the tables hold all, or do not change although the job runs, or the job does not run."""
        changed_s, runs, last = time.monotonic(), 0, None
        while True:
            begun_s = time.monotonic()
            state = await asyncio.to_thread(self._look)
            if state is not None and not state.violations:
                return
            now = None if state is None else (state.messages, tuple(state.violations))
            done = len(self._site.job_runs())
            if now != last:
                changed_s, runs, last = time.monotonic(), done, now
            quiet_s = time.monotonic() - changed_s
            if (quiet_s > STALLED_S and done - runs > STALLED_RUNS) or quiet_s > self._job_s:
                self._say(f"nothing has changed for {quiet_s:.0f} s, in {done - runs} runs of the job")
                return
            await asyncio.sleep(RECOUNT_S + time.monotonic() - begun_s)
            await self._site.revive()

    async def _end(self) -> None:
        """Ends all processes in order, lets the job take in what is left, and judges."""
        site = self._site
        await site.stop(*DEVICE_QOS, *GATEWAYS, *LANDERS)
        self._say("the last runs of the job, and cloud verify")
        await self._ingest_last()
        await site.stop(JOB)
        code, lines = await site.run("verify", "cloud", "verify", *site.folders)
        if code:
            self.violations.append(f"cloud verify ends with {code}: {' | '.join(lines[-6:])}")
        state = await asyncio.to_thread(self._look)
        if state is None:
            self.violations.append("there are no tables")
            return
        self.verdicts = state.verdicts
        self.violations += state.violations
        self.gaps.update({f"{gap.origin} {gap.reason}": 0 for gap in state.gaps})
        for gap in state.gaps:
            self.gaps[f"{gap.origin} {gap.reason}"] += gap.missing
        senders: dict[str, Sender] = {sender.name: sender for sender in site.senders}
        for verdict in self.verdicts:
            self.violations += last_seen(site.landing, site.tables, verdict, senders.get(verdict.name))

    async def _ingest_last(self) -> None:
        """Returns when the job has done a whole run on the files that are there."""
        enough = len(self._site.job_runs()) + 2
        try:
            async with asyncio.timeout(self._job_s):
                while len(self._site.job_runs()) < enough:
                    await asyncio.sleep(LOOK_S)
                    await self._site.revive()
        except TimeoutError:
            self.violations.append(f"the job has not done two runs in {self._job_s:g} s")
        failed = [line for line in self._site.job_runs() if not json.loads(line)["holds"]]
        self.violations += [f"a run of the job does not hold: {line}" for line in failed[:1]]

    def _look(self) -> Recount | None:
        try:
            return Recount(self._site.tables, self._site.senders, self._site.made())
        except NoTables:
            return None
