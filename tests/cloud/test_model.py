"""Random histories of landing files and jobs: after each step the tables equal a plain model."""

import os
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cloud import OpenTables, ingest, maintain, rebuild, requarantine
from cloud.landing.batch import to_table
from cloud.landing.file import Row
from cloud.landing.folder import LandingFolder
from tests.cloud.job.links import dropped, handed, handed_on, stated
from tests.cloud.lake import Lake
from tests.cloud.messages import BASE_TIME_S, row
from tests.cloud.model import YEAR_10000_MS, Message, Model, Reading, Trip
from tools.lab.torture.cloud.messages import DECODER
from wire.bulk.batch_encoder import ColumnBatchEncoder
from wire.bulk.column_batch import CONTENT_TYPE, decode_batch
from wire.bulk.property_block import encode_contents
from wire.properties import CONTENT_TYPE as CONTENT_TYPE_PROPERTY

HISTORIES = int(os.environ.get("HOLDFAST_HISTORIES", "1"))
STEPS = 10
SENML = "application/senml+json"


class Fleet:
    """Draws messages, and knows what becomes of them."""

    def __init__(self, chance: random.Random) -> None:
        self.trips: list[Trip] = []
        self.late: list[Message] = []
        self._chance = chance
        self._next: dict[tuple[str, int], int] = {}
        self._sent: list[Message] = []

    def draw(self, count: int) -> list[Message]:
        """Returns about ``count`` messages in random order, some of them once more or in conflict with earlier ones."""
        messages = [self._draw() for _ in range(count)]
        if self._chance.random() < 0.5:
            messages += self._take_trip()
        self._chance.shuffle(self.late)
        messages += [self.late.pop() for _ in range(len(self.late) // 3)]
        self._chance.shuffle(messages)
        self._sent += [one for one in messages if one.statement is None]
        return messages

    def _draw(self) -> Message:
        kind = self._chance.random()
        if self._sent and kind < 0.25:
            earlier = self._chance.choice(self._sent)
            if kind < 0.15:
                return earlier
            return self._measured(earlier.row, self._chance.randrange(3))
        stream = self._chance.choice(("attic", "cellar")), self._chance.choice((1, 0xCAFE))
        seq = self._next.get(stream, 0) + self._chance.choice((1, 1, 1, 1, 2, 4))
        self._next[stream] = seq
        return self._make(row(seq, stream[0], epoch=stream[1]))

    def _make(self, plain: Row) -> Message:
        if self._chance.random() < 0.2:
            plain = plain._replace(received_ms=None, gateway=None)  # of a foreign device
        elif self._chance.random() < 0.1:
            plain = plain._replace(received_ms=self._chance.choice((YEAR_10000_MS, -1, 2**62)))
        place = f"house/{plain.origin}"
        untyped = plain._replace(topic=place, content_type=None)
        match self._chance.randrange(7):
            case 0:
                return Message(untyped._replace(topic=f"{place}/t", payload=b"21.5"), (Reading(place, "t", 21.5),))
            case 1:
                flat = Reading(place, "a", 1.0), Reading(place, "b.c", 2.5)
                return Message(untyped._replace(payload=b'{"a":1,"b":{"c":2.5}}'), flat)
            case 2:
                payload = b"\xff" * self._chance.randint(1, 9)
                own = (Reading(plain.origin, "count", float(len(payload))),)
                return Message(untyped._replace(topic="meters/7", payload=payload), own_readings=own)
            case 3:
                payload = self._chance.choice((b"no SenML", b"", b"[{", b'[{"n":"a","bver":99}]'))
                return Message(plain._replace(payload=payload))
            case 4:
                return Message(plain._replace(content_type=CONTENT_TYPE, payload=b"cut off"))
            case _:
                return self._measured(plain, plain.seq)

    def _measured(self, plain: Row, value: int) -> Message:
        """Returns a pack of two records, the first with a time."""
        time_s = BASE_TIME_S + plain.seq
        payload = b'[{"bn":"%s:","n":"a","t":%d,"v":%d},{"n":"b","v":1.5}]' % (plain.origin.encode(), time_s, value)
        found = Reading(plain.origin, "a", float(value), has_time=True), Reading(plain.origin, "b", 1.5)
        return Message(plain._replace(topic="telemetry/x", content_type=SENML, payload=payload), found)

    def _take_trip(self) -> list[Message]:
        """Returns a gateway's statement, and the messages of its new device, without the ones that come later or
        never."""
        name = f"trip-{len(self.trips)}"
        last = self._chance.randint(2, 12)
        reasons = {seq: self._chance.choice(("expired", "evicted")) for seq in range(1, last + 1)}
        gone = {seq: reasons[seq] for seq in reasons if self._chance.random() < 0.2}
        sent = [seq for seq in reasons if seq not in gone]
        ranges = [dropped(reason, name, seq, seq) for seq, reason in gone.items()]
        origins = [handed_on(name, len(sent), sent[0], last)] if sent else []
        said = Message(stated(f"gw-{name}", 1, 1, len(sent), origins, ranges), statement=1)
        self.trips.append(Trip(name, 0xCAFE, last, gone, said.identity))
        found = []
        for number, seq in enumerate(sent, 1):
            message = self._measured(handed(name, seq, number, f"gw-{name}"), seq)
            match self._chance.randrange(4):
                case 0:
                    pass  # lost
                case 1:
                    self.late.append(message)
                case _:
                    found.append(message)
        return [said, *found]


class History:
    """A landing folder, its tables, and the model."""

    def __init__(self, spark: SparkSession, folder: Path, chance: random.Random) -> None:
        self._lake = Lake(spark, folder / "landing", folder / "tables")
        self._lake.landing.mkdir(parents=True)
        self._decoder = folder / "meters.py"
        self._decoder.write_text(DECODER)
        self._chance = chance
        self._fleet = Fleet(chance)
        self._landed: dict[str, list[Message]] = {}
        self._boot = 0
        self._model = Model()

    def land(self) -> None:
        """Lands some files of two landers, some messages as rows of a column batch, or a file once more."""
        for _ in range(self._chance.randint(1, 3)):
            self._boot += 1
            again = self._landed and self._chance.random() < 0.2
            messages = self._chance.choice([*self._landed.values()]) if again else self._fleet.draw(12)
            batched = [one for one in messages if _fits_a_batch(one) and self._chance.random() < 0.3]
            single = [one for one in messages if one not in batched]
            folder = LandingFolder(self._lake.landing, self._chance.choice(("lander-1", "lander-2")), self._boot)
            described = folder.land([*([_batch_of(batched)] if batched else []), *(one.row for one in single)])
            folder.close()
            self._landed[described.file] = [*batched, *single]

    def act(self) -> str:
        """Runs the job, or what looks after its tables; returns the name."""
        places = self._lake
        own = [self._decoder]

        def of_model(with_own: bool = False) -> None:
            self._model.ingest(self._landed, with_own)

        def anew() -> None:
            shutil.rmtree(f"{places.folder}.replaced", ignore_errors=True)
            self._model = Model()
            of_model()
            rebuild(*places)

        def without_checkpoint() -> None:
            shutil.rmtree(places.folder / "_checkpoint", ignore_errors=True)
            of_model()
            ingest(*places)

        def taken_in(with_own: bool) -> None:
            of_model(with_own)
            ingest(*places, decoders=own if with_own else [])

        def again(with_own: bool) -> None:
            self._model.requarantine(with_own)
            requarantine(*places, decoders=own if with_own else [])

        actions: dict[str, tuple[int, Callable[[], object]]] = {
            "ingest": (6, lambda: taken_in(False)),
            "ingest with a decoder": (2, lambda: taken_in(True)),
            "ingest without checkpoint": (1, without_checkpoint),
            "requarantine": (1, lambda: again(False)),
            "requarantine with a decoder": (3, lambda: again(True)),
            "maintain": (1, lambda: maintain(*places)),
            "rebuild": (1, anew),
        }
        weights = [weight for weight, _ in actions.values()]
        name = self._chance.choices([*actions], weights)[0] if self._model.files else "ingest"
        actions[name][1]()
        return name

    def check(self) -> None:
        """Asserts that each table and view equals the model's."""
        model = self._model
        rows = {name: self._lake.rows(name) for name in ("bronze_messages", "readings", "quarantine", "batches")}
        assert sorted(
            (*_identity(one), one["payload"], one["topic"], one["content_type"] or "", one["file"], one["batch"])
            for one in rows["bronze_messages"]
        ) == sorted(
            (*identity, message.row.payload, message.row.topic, message.row.content_type or "", file, batch)
            for identity, (message, file, batch) in model.messages.items()
        )
        columns = ("record", "device", "metric", "value", "event_time_by", "batch")
        found = sorted((*_identity(one), *(one[name] for name in columns)) for one in rows["readings"])
        assert found == sorted(model.readings)
        aside = (
            (one["kind"], *_identity(one), *(one[name] for name in ("payload", "file", "batch")))
            for one in rows["quarantine"]
        )
        assert sorted(aside) == sorted(model.quarantine())
        assert sorted(tuple(one.values())[0:1] + tuple(one.values())[2:10] for one in rows["batches"]) == model.batches
        files = {one["file"]: one["batch"] for one in self._lake.rows("landing_files") if one["status"] == "ingested"}
        assert files == model.files
        numbers = [
            (one["origin"], int(one["epoch"], 16), seq)
            for one in self._lake.rows("ledger")
            for seq in range(one["lo"], one["hi"] + 1)
        ]
        assert sorted(numbers) == sorted(model.messages)
        said = [message.row.origin for message, *_ in model.messages.values() if message.statement is not None]
        assert sorted(one["gateway"] for one in self._lake.rows("statements")) == sorted(said)
        self._check_views()

    def _check_views(self) -> None:
        with OpenTables(self._lake.folder) as views:
            gaps = views.select("SELECT origin, epoch, lo, hi, place, reason, missing FROM gaps").rows
            shares = views.select("SELECT origin, epoch, arrived, missing FROM completeness").rows
        found: list[tuple[Any, ...]] = sorted((origin, int(str(epoch), 16), *rest) for origin, epoch, *rest in gaps)
        assert all(missing == hi - lo + 1 for _, _, lo, hi, _, _, missing in found)
        assert _joined(gap[:6] for gap in found) == sorted(self._model.gaps(self._fleet.trips))
        counts = {(origin, int(str(epoch), 16)): (arrived, missing) for origin, epoch, arrived, missing in shares}
        assert counts == self._model.completeness(self._fleet.trips)


def _joined(gaps: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Makes one gap of gaps that follow each other for one reason: a statement may name them one by one."""
    joined: list[tuple[Any, ...]] = []
    for origin, epoch, lo, hi, *kind in gaps:
        if joined and joined[-1][:2] == (origin, epoch) and joined[-1][3] == lo - 1 and joined[-1][4:] == (*kind,):
            lo = joined.pop()[2]
        joined.append((origin, epoch, lo, hi, *kind))
    return joined


def _identity(one: dict[str, object]) -> tuple[object, int, object]:
    return one["origin"], int(str(one["epoch"]), 16), one["seq"]


def _fits_a_batch(message: Message) -> bool:
    return message.row.gateway is not None and message.has_time and not message.row.via


def _batch_of(messages: list[Message]) -> pa.Table:
    """Returns the messages as a lander lands them that came in one publish with a column batch."""
    encoder = ColumnBatchEncoder()
    for one in (message.row for message in messages):
        block = encode_contents({CONTENT_TYPE_PROPERTY: one.content_type} if one.content_type else {})
        identity = (one.origin, one.epoch, one.seq)
        assert one.received_ms is not None and one.gateway is not None
        encoder.add(one.topic, one.payload, 1, False, block, *identity, one.received_ms, one.gateway)
    return to_table(decode_batch(encoder.encode()), messages[0].row.landed_ms, 1, "lander-1")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(HISTORIES))
def test_tables_are_those_of_a_plain_model_after_each_step(
    spark: SparkSession, tmp_path: Path, seed: int, number: int
) -> None:
    """HOLDFAST_HISTORIES=100 makes it a hundred histories."""
    chance = random.Random(seed + number)
    history = History(spark, tmp_path, chance)
    done = []
    for _ in range(STEPS):
        history.land()
        done.append(history.act())
        print("after", *done, sep="\n  ")
        history.check()
