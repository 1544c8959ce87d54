"""What is tortured: publishers, a gateway whose route waits for receipts, a mosquitto, a lander, and the job."""

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cloud import NoTables, OpenTables
from tools.lab.testing.gateway import Gateway
from tools.lab.testing.mosquitto import Mosquitto
from tools.lab.testing.process import Process, holdfast
from tools.lab.torture.publisher import EPOCH, Publisher
from tools.lab.torture.site import Site
from uplink.control import ControlFailed, ask

Identity = tuple[str, int, int]

PUBLISHERS = 2
GATEWAY, ROUTE, LANDER, JOB = "edge", "central", "lander-1", "job"
ROLL_S = 1
JOB_EVERY_S = 2
RESEND_AFTER_S = 4
JOB_S = 60.0
LOOK_S = 0.5
MESSAGES = "SELECT origin, epoch, seq FROM bronze_messages"
TABLE = """\
[[route]]
name = "{route}"
broker = "mqtt://127.0.0.1:{port}"
filters = ["torture/#"]
until = "receipt"
resend_after_s = {resend_after_s}
keep_alive_s = 2
backoff_shortest_ms = 50
backoff_longest_ms = 500
{more}"""


class Sender(Publisher):
    """Publishes numbered messages at QoS 1, many at a time."""

    window = 200


class ReceiptsSite(Site):
    """All processes and files of a run; `open` starts them, `close` ends them.

    Args:
        folder: an empty folder.
        messages: how many the publishers send together.
        resend_after_s: the key of the route.
        more: other keys of it, a line each.
        job_every_s: how often the job runs; None: there is no process of it.

    Attributes:
        gateway, broker, lander, job: the processes.
        landing, tables: the folders of the landing files and the tables.
        away: the names of the processes that do not run now, as a fault says.
        origins: whose messages are counted.
    """

    def __init__(
        self,
        folder: Path,
        messages: int,
        resend_after_s: int = RESEND_AFTER_S,
        more: str = "",
        job_every_s: float | None = JOB_EVERY_S,
    ) -> None:
        super().__init__()
        self.folder = folder
        self.landing, self.tables = folder / "landing", folder / "tables"
        for name in (GATEWAY, "central"):
            (folder / name).mkdir()
        self.broker = Mosquitto(folder / "central", "max_inflight_messages 0")
        table = TABLE.format(route=ROUTE, port=self.broker.port, resend_after_s=resend_after_s, more=more)
        self.gateway = Gateway(folder / GATEWAY, table, name=GATEWAY)
        self.lander = Process(LANDER, self._lander_command(), folder / "lander.log", ready="subscribed")
        self.processes: dict[str, Process] = {
            "the broker": self.broker,
            "the lander": self.lander,
            "the gateway": self.gateway,
        }
        self.job: Process | None = None
        if job_every_s is not None:
            self.job = self.processes[JOB] = Process(JOB, self._job_command(job_every_s), folder / "job.log")
        share = -(-messages // PUBLISHERS)
        counts = [min(share, messages - first) for first in range(0, messages, share)]
        self.publishers = [Sender(f"p{number}", self.gateway.port, 1, count) for number, count in enumerate(counts)]
        self.origins = {one.name for one in self.publishers}
        self.away: set[str] = set()

    async def open(self) -> None:
        """Starts each process after its peers. Raises ProcessFailed, OSError."""
        for name, process in self.processes.items():
            if name not in self.away:
                await process.up()

    def is_done(self, name: str) -> bool:
        return name in self.away

    # What was acknowledged, and what is where

    def accepted(self) -> set[Identity]:
        """The messages that have to be in the tables in the end: the gateway has acknowledged them to publishers."""
        return {(one.name, EPOCH, number) for one in self.publishers for number in one.accepted}

    def in_tables(self) -> Counter[Identity]:
        """How often each message is in the table of messages now; none is if there are no tables."""
        found: Counter[Identity] = Counter()
        with suppress(NoTables), OpenTables(self.tables) as tables:
            for origin, epoch, seq in tables.select(MESSAGES).rows:
                if origin in self.origins:
                    found[str(origin), int(str(epoch), 16), int(str(seq))] += 1
        return found

    def landed(self) -> set[str]:
        """The names of the landing files that are complete."""
        return {path.stem for path in self.landing.glob("[!.]*.json")}

    def status(self) -> dict[str, Any]:
        """What the gateway says of its route. Raises ControlFailed."""
        found: dict[str, Any] = ask(self.gateway.messages.parent, "status")[0]
        return found

    def runs(self) -> list[dict[str, Any]]:
        """What the job has told of each of its runs."""
        path = self.folder / "job.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{")]

    async def job_runs(self, more: int) -> None:
        """Returns when the job, which has just begun, has ended `more` runs, or has not in a minute."""
        enough = len(self.runs()) + more
        await self.until(lambda: len(self.runs()) >= enough, JOB_S)

    async def until(self, is_so: Callable[[], bool], deadline_s: float) -> bool:
        """Returns when it is so, and whether it is within a time."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + deadline_s
        while not await asyncio.to_thread(is_so):
            if loop.time() > end_s:
                return False
            await asyncio.sleep(LOOK_S)
        return True

    def is_handed_on(self) -> bool:
        """Whether the broker has acknowledged all that the gateway has."""
        try:
            status = self.status()
        except ControlFailed:
            return False
        return status["connected"] and not status["backlog_messages"]

    def is_complete(self) -> bool:
        """Whether all that has to be in the tables is there."""
        return not self.accepted() - self.in_tables().keys()

    # What the faults are made of

    async def lose_central_store(self) -> None:
        """The broker, which may run, loses all that it has: messages, sessions, retained messages."""
        await asyncio.to_thread(self.broker.kill)
        (self.folder / "central" / "mosquitto.db").unlink(missing_ok=True)

    def lose_landing_folder(self) -> None:
        """Removes the landing folder with all that is in it."""
        shutil.rmtree(self.landing)

    async def stop(self, process: Process, name: str) -> None:
        """Kills a process, which stays away until `back`."""
        self.away.add(name)
        await asyncio.to_thread(process.kill)

    async def back(self, process: Process, name: str) -> None:
        """Starts it again. Raises ProcessFailed."""
        await process.up()
        self.away.discard(name)

    async def ingest(self, *more: str) -> tuple[int, list[str]]:
        """Runs the job once, with receipts; returns its exit code and its lines."""
        return await Process("one job", self._job_command(None, *more)).to_end()

    def _lander_command(self) -> list[str]:
        return holdfast(
            "lander", "run", "--volatile",
            "--name", LANDER,
            "--group", "landers",
            "--broker", f"mqtt://127.0.0.1:{self.broker.port}",
            "--landing", str(self.landing),
            "--roll-seconds", str(ROLL_S),
        )  # fmt: skip

    def _job_command(self, every_s: float | None, *more: str) -> list[str]:
        often = () if every_s is None else ("--every", f"{every_s:g}s")
        return holdfast(
            "cloud", "ingest",
            "--landing", str(self.landing),
            "--tables", str(self.tables),
            "--receipts", f"mqtt://127.0.0.1:{self.broker.port}",
            "--json", *often, *more,
        )  # fmt: skip
