"""One job at a time works on the tables. In a local folder it holds a lock; in an object store jobs take turns.

A turn is a number. A job takes the next one by creating its object, which succeeds for one job alone, and renews the
object while it runs. A later job is refused as long as that is fresh. A job that has been silent for too long is taken
for dead. It may only have been slow: so the job that takes over first commits its number to each table's log. A commit
is created on condition that its version is free, so what the slow job still sends either came before and is seen, or
fails: then it reads the number of the later job, and ends. No clock decides what the tables hold.

docs/reference/tables.md#one-job-at-a-time has the objects.
"""

import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from cloud.storage.local import LocalStorage
from cloud.storage.place import open_storage
from cloud.storage.storage import Storage
from cloud.tables.schema import TABLES
from cloud.tables.stored_table import FENCE, JobRunning, StoredTable
from cloud.tables.tables import JOB_LOCK, JOBS, Tables
from cloud.tables.version import complete, require_current

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RENEW_S = 30.0
SILENT_S = 300.0
"""A job that has not renewed its turn for so long is taken for dead."""
_TURN = "turn.json"
_CHECKPOINT = "checkpoint"


State: TypeAlias = Literal["running", "ended", "failed"]


class JobTurn(msgspec.Struct, frozen=True):
    """What the object of a turn says. A job that `ended` has the answer to each of its requests; one that `failed` may
    have requests on the way. By `id` no two jobs write the same."""

    holder: str
    state: State
    id: str


class Hold:
    """The right to work on the tables in a folder. `checkpoint` is the folder for the plan of the job's batch."""

    def __init__(self, folder: Storage, checkpoint: Storage, turn: "_Taken | None" = None) -> None:
        """turn: the job's turn in an object store."""
        self.checkpoint = checkpoint
        self._folder = folder
        self._turn = turn

    def open_tables(self, spark: "SparkSession | None", *, creating: bool = True) -> Tables:
        """Returns the tables, all of them and of this version. Raises NewerTables, JobRunning, OSError.

        spark: None for a command that needs no Spark.
        creating: makes the tables that do not exist yet. Otherwise they raise OlderTables.
        """
        tables = Tables(spark, self._folder, self._turn.number if self._turn else None)
        if not creating:
            require_current(tables)  # before anything is written
        if self._turn:
            if not self._turn.is_alone:
                tables.fence()
                self._turn.is_alone = True
            # Not before: until then a slow job may delete what it has committed by its plan.
            self._turn.inherit()
        complete(tables)
        return tables


class _Taken:
    """A turn that this job has taken. `is_alone` says whether no request of an earlier job can change a table."""

    def __init__(self, jobs: Storage, number: int, last: int, is_alone: bool) -> None:
        self.number = number
        self.is_alone = is_alone
        self.folder = jobs.child(f"{number:012}")
        self._jobs = jobs
        self._last = last

    def inherit(self) -> None:
        """Takes over the checkpoint of the turn before, and removes what earlier turns have left."""
        entries = [entry.name for entry in self._jobs.walk() if entry.name < f"{self.number:012}"]
        for entry in entries:
            turn, _, name = entry.partition("/")
            if turn == f"{self._last:012}" and name.startswith(f"{_CHECKPOINT}/"):
                with suppress(FileNotFoundError):
                    self.folder.write(name, self._jobs.read(entry))
        for entry in entries:
            self._jobs.remove(entry)


@contextmanager
def only_job(place: Path | str | Storage) -> Iterator[Hold]:
    """Lets one job at a time work on the tables in a folder. Raises JobRunning, OSError."""
    folder = open_storage(place)
    if isinstance(folder, LocalStorage):
        if not folder.lock(JOB_LOCK):
            raise JobRunning(f"another job is working on the tables in {folder}")
        try:
            yield Hold(folder, folder.child("_checkpoint"))
        finally:
            folder.unlock()
    else:
        with _next_turn(folder) as hold:
            yield hold


@contextmanager
def _next_turn(folder: Storage) -> Iterator[Hold]:
    turn = _take_turn(folder)
    ended = Event()
    renewing = Thread(target=_renew, args=(turn.folder, ended), daemon=True)
    renewing.start()
    is_sound = False
    try:
        yield Hold(folder, turn.folder.child(_CHECKPOINT), turn)
        is_sound = turn.is_alone
    finally:
        ended.set()
        renewing.join()
        # Where this fails, the next job waits until this one has been silent for long enough.
        with suppress(OSError):
            turn.folder.write(_TURN, _encode("ended" if is_sound else "failed"))


def _take_turn(folder: Storage) -> _Taken:
    """Takes the next turn. Raises JobRunning, OSError."""
    jobs = folder.child(JOBS)
    last, silent_s = _last_turn(jobs)
    before = msgspec.json.decode(jobs.read(f"{last:012}/{_TURN}"), type=JobTurn) if last else None
    if before and before.state == "running" and silent_s < SILENT_S:
        raise JobRunning(
            f"another job is working on the tables in {folder}: {before.holder}, which gave its last sign "
            f"{silent_s:.0f} s ago; after {SILENT_S:.0f} s without one it is taken for dead"
        )
    # Where the turns are lost, the logs of the tables know the last one that took over.
    number = 1 + (last or _last_fence(folder))
    if not jobs.create(f"{number:012}/{_TURN}", _encode("running")) or _last_turn(jobs)[0] != number:
        raise JobRunning(f"another job has just begun to work on the tables in {folder}")
    return _Taken(jobs, number, last, before is not None and before.state == "ended")


def _last_fence(folder: Storage) -> int:
    """Returns the last turn that has taken over the tables from another; 0 without one."""
    tables = (StoredTable(folder.child(table.name), read_only=True) for table in TABLES)
    return max(0, *(table.transaction(FENCE) for table in tables))


def _last_turn(jobs: Storage) -> tuple[int, float]:
    """Returns the last turn that was taken, 0 without one, and for how long it has been silent (s)."""
    turns = [(int(entry.name[:12]), entry.modified_s) for entry in jobs.walk() if entry.name.endswith(f"/{_TURN}")]
    number, modified_s = max(turns, default=(0, 0.0))
    return number, time.time() - modified_s


def _renew(folder: Storage, ended: Event) -> None:
    while not ended.wait(RENEW_S):
        with suppress(OSError):
            folder.write(_TURN, _encode("running"))


def _encode(state: State) -> bytes:
    return msgspec.json.encode(JobTurn(f"process {os.getpid()} on {socket.gethostname()}", state, uuid.uuid4().hex))
