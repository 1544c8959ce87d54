"""``holdfast lab torture store``: cuts the power at each write and sync of a gateway's store."""

import logging
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from gateway.errors import StoreError
from gateway.message import Message
from gateway.store import MESSAGES, retained
from gateway.store.database import Database
from gateway.store.reader import READ_BYTES_MAX, read_rows
from gateway.store.sqlite.folder import take_folder
from tools.cli.failure import failing_on
from tools.cli.paths import memory_folder, source_root
from tools.lab.result import JSON_OPTION, Judgement, end_judged, quick_option
from tools.lab.strace import StraceUnavailable
from tools.lab.torture.store.disk import Disk
from tools.lab.torture.store.life import AWAY, AWAY_TOPIC, COMPACTED, CONSUMER, DURABLE, PASSED, SUBMITTED, on_one_disk
from tools.lab.torture.store.model import TOPICS, State, number_of, states, topics
from tools.lab.torture.store.trace import Said, read, trace

ONE_IN = 200  # of what is left is started on, and cut again
VIOLATIONS_MAX = 10  # that are told


class Broken(Exception):
    """A promise that a store did not keep."""


class Torture:
    """Cuts the power in one life of a store at each write and sync, `attempts` times at each place, and checks what is
    left; now and then it also cuts the power while a gateway starts on what is left. The life has `length` steps."""

    def __init__(self, seed: int, length: int, attempts: int) -> None:
        self.counts = Counter(cuts=0, cuts_two_deep=0, broken=0, compacted=0)
        self.violations: list[str] = []
        self._seed = seed
        self._length = length
        self._attempts = attempts
        self._dice = random.Random(seed)
        self._states = states(seed, length)
        self._topics = topics(seed, length)
        self._said = Counter({SUBMITTED: 0, DURABLE: 0, PASSED: 0})

    def run(self, folder: Path) -> None:
        """Lives in a folder. Raises StraceUnavailable, subprocess.CalledProcessError."""
        folder.mkdir()
        for place, disk in self._live(folder, self._length):
            for _ in range(self._attempts):
                self.counts["cuts"] += 1
                with tempfile.TemporaryDirectory(dir=memory_folder()) as left:
                    disk.cut(self._dice, Path(left))
                    if self.counts["cuts"] % ONE_IN == 0:
                        self._cut_again(Path(left), place)
                    self._attempt(Path(left), (place,))
        if not self.counts["cuts"]:
            raise StraceUnavailable("strace's record says nothing of the store's files")

    def _live(self, folder: Path, length: int) -> Iterator[tuple[int, Disk]]:
        """Yields the disk after each thing that a life does to it."""
        disk = Disk(folder)
        with tempfile.TemporaryDirectory() as beside:
            record = Path(beside) / "record"
            argv = [sys.executable, "-m", "tools.lab.torture.store.life", str(folder), str(self._seed), str(length)]
            trace(argv, record, source_root())
            for place, event in enumerate(read(record, folder)):
                if isinstance(event, Said):
                    what, number = event.text.split()
                    if what == COMPACTED:
                        self.counts[COMPACTED] += int(number)
                    else:
                        self._said[what] = int(number)
                else:
                    disk.take(event)
                    yield place, disk

    def _cut_again(self, left: Path, first: int) -> None:
        """The power goes again while a gateway starts on what is left."""
        said = self._said.copy()
        with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
            files = Path(folder) / "store"
            shutil.copytree(left, files)
            try:
                for second, disk in self._live(files, 0):
                    self.counts["cuts_two_deep"] += 1
                    with tempfile.TemporaryDirectory(dir=memory_folder()) as again:
                        disk.cut(self._dice, Path(again))
                        self._attempt(Path(again), (first, second))
            except subprocess.CalledProcessError as error:
                self._note((first,), error.stderr.decode().strip().splitlines()[-1])
        self._said = said

    def _attempt(self, left: Path, places: tuple[int, ...]) -> None:
        try:
            with (
                on_one_disk(),
                closing(take_folder(left)) as taken,
                closing(Database(left / MESSAGES, "gw", taken)) as database,
            ):
                self._look_at(database)
        except (Broken, StoreError, sqlite3.DatabaseError) as error:
            self._note(places, str(error))

    def _note(self, places: tuple[int, ...], what: str) -> None:
        self.counts["broken"] += 1
        if len(self.violations) < VIOLATIONS_MAX:
            said = ", ".join(f"{name} {number}" for name, number in self._said.items())
            self.violations.append(f"cut at {places}, {said}: {what}")

    def _look_at(self, database: Database) -> None:
        found = _state_of(database)
        possible = self._states[self._said[DURABLE] : self._said[SUBMITTED] + 1]
        if found not in possible:
            raise Broken(f"{found} is not what was there between {possible[0]} and {possible[-1]}")
        position, _ = database.found.cursors.get(CONSUMER, (0, 0))
        if position > self._said[PASSED]:
            raise Broken(f"the consumer's place is {position}, and it has acknowledged {self._said[PASSED]}")
        place, taken = database.found.cursors.get(AWAY, (0, 0))
        waiting = min((at for at, topic in self._topics.items() if topic == AWAY_TOPIC), default=len(self._topics) + 1)
        if place >= waiting or taken:
            raise Broken(f"the place of the consumer that is away is {place}, {taken}; message {waiting} waits for it")
        messages = {position: number_of(message.payload) for position, message in _all_messages(database, 0)}
        if any(number != at for at, number in messages.items()):
            raise Broken(f"these are not at their positions: {messages}")
        needed = {at for at in range(1, found.messages + 1) if at > position or self._topics[at] == AWAY_TOPIC}
        if missing := needed - messages.keys():
            raise Broken(f"of the messages 1 to {found.messages} these are missing: {sorted(missing)}")


def _state_of(database: Database) -> State:
    found = retained.read(database.reader, TOPICS, READ_BYTES_MAX)
    kept = {(topic, number_of(one[1].payload)) for topic, one in found.items() if one}
    incoming = {(session, one) for session, identifiers in database.found.incoming.items() for one in identifiers}
    wills = {(will.session, will.delay_s) for will in database.found.wills}
    return State(database.position, frozenset(incoming), frozenset(kept), frozenset(wills))


def _all_messages(database: Database, after: int) -> list[tuple[int, Message]]:
    found: list[tuple[int, Message]] = []
    while groups := read_rows(database.reader, after, database.position):
        for group in groups:
            found += group.read(after, group.last)
        after = groups[-1].last
    return found


def store(
    steps: Annotated[int, typer.Option(min=1, help="How many things the store is asked to write.")] = 300,
    attempts: Annotated[int, typer.Option(min=1, help="How many times the power is cut at each place.")] = 2,
    seed: Annotated[int, typer.Option(help="The number from which all chance is drawn.")] = 1,
    quick: Annotated[bool, quick_option(steps=40, attempts=1)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Cut the power of a gateway's message store at each write and sync, and start a gateway on what is left.

    Ends with 1 if anything is missing that the store had confirmed.
    """
    started = time.monotonic()
    logging.getLogger("gateway").addHandler(logging.NullHandler())  # each start on what is left warns of its lock file
    torture = Torture(seed, steps, attempts)
    lost = failing_on(StraceUnavailable, command="lab torture store")
    with lost, tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        torture.run(Path(folder) / "store")
    judgement = Judgement(
        not torture.counts["broken"], seed, violations=torture.violations, more={"steps": steps, **torture.counts}
    )
    counts = ", ".join(f"{what.replace('_', ' ')} {number:,}" for what, number in torture.counts.items())
    end_judged("torture", "store", judgement, time.monotonic() - started, [counts, *torture.violations], as_json)
