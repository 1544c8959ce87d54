"""A lander's folder, the job's landing folder, where files come late and in any order, and jobs that are killed."""

import hashlib
import random
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from cloud.landing.file import FileNumber, Row
from cloud.landing.folder import LandingFolder
from cloud.landing.manifest import Manifest, load_manifest
from cloud.storage.place import open_storage
from tools.lab.torture.cloud.driver import Answer, Order
from tools.lab.torture.cloud.lander import Landing
from tools.lab.torture.cloud.messages import DECODER, Key
from tools.lab.torture.cloud.places import Places
from tools.lab.torture.cloud.worker import Worker

COPIER = "copier-1"
LOOK_S = 0.05


class Site:
    """All folders of one run, and its processes: a lander, and as many jobs as there are."""

    def __init__(self, folder: Path, chance: random.Random, places: Places, jobs: int = 1) -> None:
        """folder: for what the site itself needs. It ends the places when it is closed."""
        self.tables = places.tables
        self.files: dict[str, list[Key]] = {}
        self.struck: dict[str, int] = {}
        self._chance = chance
        self._places = places
        self._origin, self._landing = open_storage(places.origin), open_storage(places.landing)
        self._messages = folder / "messages"
        decoder = folder / "meters.py"
        decoder.write_text(DECODER)
        self._jobs = [
            Worker(f"driver {number}", "driver", [str(decoder), *places.job(number)], folder) for number in range(jobs)
        ]
        self._lander = Worker("lander", "lander", places.lander(), folder)
        self._pending: set[str] = set()
        self._brought: list[str] = []
        self._copies = 0
        self._boot = 0

    def close(self) -> None:
        """Ends all processes."""
        for worker in (*self._jobs, self._lander):
            worker.end()
        for name, count in self._places.close().items():
            self.strike(name, count)

    def strike(self, name: str, count: int = 1) -> None:
        """Counts a fault."""
        self.struck[name] = self.struck.get(name, 0) + count

    # The lander

    def land(self, rows: list[Row]) -> bool:
        """Lands messages. Returns whether they are acknowledged; a lander that was killed gets them again.

        Raises WorkerFailed.
        """
        self._boot += 1
        if self._chance.random() < 0.5:
            self._messages.write_bytes(msgspec.msgpack.encode(rows))
            landing = Landing(str(self._messages), self._boot, self._chance.randrange(1, 9))
            self._lander.start()
            self._lander.tell(msgspec.json.encode(landing).decode())
            ended = self._lander.hear()
            if ended is None or ended.strip() != "0":
                self.strike("lander killed" if ended is None or ended.strip() == "9" else "lander failed")
                self._strike_killed()
                return False
        else:
            folder = LandingFolder(self._origin, "lander-1", self._boot)
            folder.land(rows)
            folder.close()
        return True

    # The way of the files to the job

    def carry(self, last: bool = False) -> None:
        """Brings files to the job: some late, without their manifest, without their file, truncated, or twice."""
        folder = LandingFolder(self._origin, "lander-1", self._boot)  # a new start removes what a killed lander left
        folder.close()
        for name in sorted(self._origin.names()):
            stem, _, ending = name.rpartition(".")
            if stem and ending == "json" and f"{stem}.parquet" not in self.files:
                self._note(stem)
        names = sorted(self._pending)
        self._chance.shuffle(names)
        for name in names:
            if last:
                self._bring(name)
            else:
                self._bring_somehow(name)
        if self._brought and self._chance.random() < 0.2:
            self._bring_again()

    def _note(self, stem: str) -> None:
        described = load_manifest(self._origin, stem)
        content = self._origin.read(described.file)
        columns = ["origin", "epoch", "seq", "payload"]
        rows = pq.read_table(pa.BufferReader(content), columns=columns, partitioning=None).to_pylist()
        self.files[described.file] = [Key(**row) for row in rows]
        self._pending.add(stem)
        if described.lander != COPIER and self._chance.random() < 0.2:
            self.strike("file twice")
            self._copy(described, content)

    def _copy(self, described: Manifest, content: bytes) -> None:
        """Lets another lander land the same messages."""
        self._copies += 1
        name = FileNumber(COPIER, 0xC0, self._copies)
        copy = msgspec.structs.replace(
            described, file=f"{name.stem}.parquet", lander=name.lander, boot=name.boot, number=name.number, own=None
        )
        assert hashlib.sha256(content).hexdigest() == copy.sha256
        self._origin.write(copy.file, content)
        self._origin.write(f"{name.stem}.json", msgspec.json.encode(copy))
        self.files[copy.file] = self.files[described.file]
        self._pending.add(name.stem)

    def _bring_somehow(self, name: str) -> None:
        match self._chance.choice(("whole", "whole", "whole", "late", "no file", "no manifest", "truncated")):
            case "whole":
                self._bring(name)
                return
            case "no file":
                self._bring_one(f"{name}.json")
                self.strike("file missing")
            case "no manifest":
                self._bring_one(f"{name}.parquet")
                self.strike("manifest late")
            case "truncated":
                content = self._origin.read(f"{name}.parquet")
                self._landing.write(f"{name}.parquet", content[: self._chance.randrange(len(content))])
                self._bring_one(f"{name}.json")
                self.strike("file truncated")
            case "late":
                self.strike("file late")

    def _bring(self, name: str) -> None:
        for ending in ("parquet", "json"):
            self._bring_one(f"{name}.{ending}")
        self._pending.discard(name)
        self._brought.append(name)

    def _bring_one(self, name: str) -> None:
        self._landing.write(name, self._origin.read(name))

    def _bring_again(self) -> None:
        """Brings a manifest that was there before, with its file or without."""
        self.strike("manifest again")
        name = self._chance.choice(self._brought)
        for ending in self._chance.choice((("json",), ("parquet", "json"))):
            self._bring_one(f"{name}.{ending}")

    # The jobs

    def order(self, order: Order) -> Answer:
        """Lets the first job do something alone. Raises WorkerFailed."""
        (answer,) = self.orders({0: order}).values()
        return answer

    def orders(self, orders: Mapping[int, Order]) -> dict[int, Answer]:
        """Lets jobs, by their numbers, do something at once. Raises WorkerFailed."""
        for number in orders:
            self._jobs[number].start(ready=True)
        for number, order in orders.items():
            self._tell(number, order)
        return self._heard(orders, {number: self._hear(self._jobs[number], order) for number, order in orders.items()})

    def overtake(self, at: int, slow: Order, fast: Order) -> dict[int, Answer]:
        """Holds the first job at one of its requests, while the second one does something. Raises WorkerFailed."""
        orders = {0: slow, 1: fast}
        line = self._places.line(0)
        assert line is not None
        for number in orders:
            self._jobs[number].start(ready=True)
        line.hold_at(at)
        self._tell(0, slow)
        while not (line.is_held(LOOK_S) or self._jobs[0].has_answered()):
            pass  # it has not come to this request yet
        self._tell(1, fast)
        try:
            second = self._hear(self._jobs[1], fast)
        finally:
            line.release()
        return self._heard(orders, {0: self._hear(self._jobs[0], slow), 1: second})

    def _tell(self, number: int, order: Order) -> None:
        self._places.begin(number)
        self._jobs[number].tell(msgspec.json.encode(order).decode())

    def _heard(self, orders: Mapping[int, Order], answers: dict[int, Answer]) -> dict[int, Answer]:
        """Counts how each of the orders has ended."""
        for number, answer in answers.items():
            order = orders[number]
            if answer.was_cut:
                self.strike(f"{order.do} killed{' with Java' if order.with_java else ''}")
                self._strike_killed()
            elif answer.was_refused or answer.failure:
                self.strike(f"{order.do} {'refused' if answer.was_refused else 'failed'}")
        return answers

    def _hear(self, job: Worker, order: Order) -> Answer:
        answer = job.hear()
        if answer is not None and order.with_java:
            job.end()  # it carried this out by itself, and no process in which delta-rs has threads can fork
        return msgspec.json.decode(answer, type=Answer) if answer else Answer(True, order.cut or 0)

    # The places

    def _strike_killed(self) -> None:
        for name in self._places.killed():
            self.strike(name)

    def settle(self) -> None:
        """No fault strikes by itself from now on."""
        self._places.settle()

    def damage(self) -> None:
        """Damages what a job has left."""
        for name in self._places.damage():
            self.strike(name)
