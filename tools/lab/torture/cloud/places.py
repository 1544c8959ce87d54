"""Where a site's landing files and tables lie, and what may happen to them there: on a disk, or in an object store."""

import os
import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from cloud.storage.place import open_storage
from cloud.tables.tables import JOBS
from tools.lab.testing.object_store import KEYS, ObjectStore
from tools.lab.torture.cloud.cut import Undone
from tools.lab.torture.cloud.line import FAULTS, KILLS, LATE_FAULTS, LATE_KILLS, StoreLine
from tools.lab.torture.cloud.worker import WorkerFailed

FAULTS_SHARE = 0.02
"""The share of requests to the object store that fail."""
OUTAGES_SHARE = 0.1
"""The share of a job's orders in which it does not reach the store for a while."""
OUTAGE_AT_MOST = 150


class Places(Protocol):
    """The folders of a site, as no fault reaches them."""

    @property
    def origin(self) -> Path | str:
        """The lander's folder."""

    @property
    def landing(self) -> Path | str:
        """The landing folder of all jobs."""

    @property
    def tables(self) -> Path | str:
        """The folder with their tables."""

    def lander(self) -> list[str]:
        """Returns the lander's folder as its process reaches it, and the file that says what a power cut may undo,
        "" where there is no power to cut."""

    def job(self, number: int) -> list[str]:
        """Returns the landing folder and the tables as a job reaches them, and a file as `lander` has it."""

    def begin(self, number: int) -> None:
        """A job is about to begin something."""

    def line(self, number: int) -> StoreLine | None:
        """Returns what lies between a job and its places; None where nothing does."""

    def killed(self) -> Iterator[str]:
        """Does what the end of a process may do to its files. Yields the names of the faults.

        Raises WorkerFailed if nothing here killed the process.
        """

    def damage(self) -> Iterator[str]:
        """Does something to what a job has left. Yields the names of the faults."""

    def settle(self) -> None:
        """No fault strikes from now on. What was under way has ended when this returns."""

    def close(self) -> dict[str, int]:
        """Ends what serves the places. Returns how often each fault struck meanwhile."""


class Disk:
    """Folders on a disk, whose power may be cut."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.origin, self.landing, self.tables = folder / "lander", folder / "landing", folder / "tables"
        self._left = folder / "left"
        self._chance = chance
        for made in (self.origin, self.landing):
            made.mkdir()

    def lander(self) -> list[str]:
        return [str(self.origin), str(self._left)]

    def job(self, number: int) -> list[str]:
        return [str(self.landing), str(self.tables), str(self._left)]

    def begin(self, number: int) -> None:
        """Nothing strikes before a kill."""

    def line(self, number: int) -> StoreLine | None:
        return None

    def killed(self) -> Iterator[str]:
        """Undoes, as a power cut may, what no sync has made durable."""
        if not self._left.exists():
            raise WorkerFailed("a process was killed, but not by its cutter")
        left = self._left.read_bytes()
        self._left.unlink()
        if self._chance.random() < 0.5:
            return
        yield "power cut"
        undone = msgspec.msgpack.decode(left, type=Undone)
        for name in undone.added:
            if self._chance.random() < 0.5:
                Path(name).unlink(missing_ok=True)
        for name in filter(os.path.exists, undone.content):
            if self._chance.random() < 0.5:
                os.truncate(name, self._chance.randrange(os.path.getsize(name) + 1))
        for name, content in undone.removed.items():
            if self._chance.random() < 0.5 and os.path.isdir(os.path.dirname(name)) and not os.path.exists(name):
                Path(name).write_bytes(content)

    def damage(self) -> Iterator[str]:
        """Does to the checkpoint, and to what others wrote to Delta's logs, what a power cut may do."""
        checkpoint = self.tables / "_checkpoint"
        # A job that was killed while it made a table leaves a log without a commit.
        logs = sorted(log for log in self.tables.glob("*/_delta_log") if any(log.glob("[0-9]*.*")))
        match self._chance.choice(("empty", "gone", "log", "log", "summary")):
            case "empty":
                yield "checkpoint emptied"
                for path in checkpoint.glob("*"):
                    path.write_bytes(path.read_bytes()[: self._chance.choice((0, 7))])
            case "gone":
                yield "checkpoint gone"
                shutil.rmtree(checkpoint, ignore_errors=True)
            case "log" if logs:
                yield "Delta log cut"
                log = self._chance.choice(logs)
                newest = max(int(path.name[:20]) for path in log.glob("[0-9]*.*"))
                cut = b'{"commitInfo":{"timestamp":1760000000000,"operation":"VACUUM END"}}'
                (log / f"{newest + 1:020}.json").write_bytes(cut[: self._chance.randrange(len(cut))])
            case "summary" if logs and (self._chance.choice(logs) / f"{0:020}.json").exists():
                yield "Delta checkpoint cut"
                for log in logs:
                    for path in log.glob("*.checkpoint.parquet"):
                        if (log / f"{0:020}.json").exists():
                            path.write_bytes(path.read_bytes()[: self._chance.randrange(100)])
            case _:
                pass

    def settle(self) -> None:
        """No fault strikes by itself."""

    def close(self) -> dict[str, int]:
        return {}


class Bucket:
    """A bucket of an object store. The lander and each job reach it over a line of their own, which fails."""

    def __init__(self, chance: random.Random, jobs: int) -> None:
        """Starts a store of its own. Raises ObjectStoreUnavailable, ProcessFailed, OSError."""
        self._store = ObjectStore()
        self._store.start()
        self.origin, self.landing, self.tables = map(self._store.url, ("lander", "landing", "tables"))
        os.environ.update(KEYS)  # for the processes of the site, too
        self._chance = chance
        self._is_settled = False
        creating = threading.Lock()
        # For the lander none is late: a manifest that comes after the next start of its lander has no file any more.
        *self._lines, self._lander = (
            StoreLine(self._store.port, creating, chance.randrange(2**32), FAULTS_SHARE, *faults)
            for faults in (*[(LATE_FAULTS, LATE_KILLS)] * jobs, (FAULTS, KILLS))
        )

    def lander(self) -> list[str]:
        return [self._store.url("lander", self._lander.port), ""]

    def job(self, number: int) -> list[str]:
        port = self._lines[number].port
        return [self._store.url("landing", port), self._store.url("tables", port), ""]

    def begin(self, number: int) -> None:
        """Lets the store be out of a job's reach sometimes, for a while from one of its requests on."""
        is_away = self._chance.random() < OUTAGES_SHARE and not self._is_settled
        self._lines[number].fail_at(self._chance.randrange(OUTAGE_AT_MOST) if is_away else None)

    def line(self, number: int) -> StoreLine | None:
        return self._lines[number]

    def killed(self) -> Iterator[str]:
        """What a process has asked of the store is on its way: its line has chosen that. A store loses nothing."""
        return iter(())

    def damage(self) -> Iterator[str]:
        """Does to the turns of the jobs, and to what they have planned, what a person may do."""
        turns = open_storage(self.tables).child(JOBS)
        entries = [entry.name for entry in turns.walk()]
        plans = [name for name in entries if "/checkpoint/" in name]
        match self._chance.choice(("empty", "gone", "turns")):
            case "empty":
                yield "checkpoint emptied"
                for name in plans:
                    turns.write(name, turns.read(name)[: self._chance.choice((0, 7))])
            case "gone":
                yield "checkpoint gone"
                for name in plans:
                    turns.remove(name)
            case _:
                yield "turns gone"
                for name in entries:
                    turns.remove(name)

    def settle(self) -> None:
        self._is_settled = True
        for line in (*self._lines, self._lander):
            line.settle()

    def close(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for line in (*self._lines, self._lander):
            line.close()
            for name, count in line.struck.items():
                found[name] = found.get(name, 0) + count
        self._store.process.kill()
        return found
