"""The job is killed before any of its operations on files, and the power may go: no receipt tells what went with it."""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cloud.receipts.settled import find_settled, read_facts
from cloud.tables.tables import Tables, has_tables
from tests.cloud.job.links import handed, handed_on, stated, without
from tests.cloud.messages import land
from tools.lab.torture.cloud.cut import Undone
from tools.lab.torture.cloud.driver import RECEIPTS, Answer, Order
from tools.lab.torture.cloud.messages import DECODER
from tools.lab.torture.cloud.worker import Worker
from wire.receipt import LANDED_TOPIC, Settled, decode_landed, decode_receipt, origin_of_topic

KILLS_LONG = int(os.environ.get("HOLDFAST_RECEIPT_KILLS", "1000"))
Claims = dict[tuple[str, int], set[int]]


class Site:
    """A job on a disk, in a process of its own."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._chance = chance
        self._landing, self.tables, self._left = folder / "landing", folder / "tables", folder / "left"
        self._landing.mkdir()
        decoder = folder / "meters.py"
        decoder.write_text(DECODER)
        self._receipts = folder / RECEIPTS
        self._job = Worker("driver", "driver", [*map(str, (decoder, self._landing, self.tables, self._left))], folder)
        self._seq = 0

    def land(self) -> None:
        """Lands a file with messages of two devices over a route, and what the route says of others."""
        first = self._seq + 1
        self._seq += 4
        rows = [handed("garage", first + place, first + place, "barn") for place in range(3)]
        rows.append(handed("attic", first, first + 3, "barn"))
        said = stated(
            "barn", self._seq, first, self._seq, [handed_on("garage", 3, first, first + 2)],
            left_out=[without("attic", (first + 1, first + 3))],
        )  # fmt: skip
        land(self._landing, [*rows, said])

    def order(self, do: str, cut: int | None = None) -> Answer:
        """Gives an order. When receipts are made, the power goes: what no process has synced is lost, all of it."""
        self._job.start(ready=True)
        self._job.tell(msgspec.json.encode(Order(do, cut)).decode())
        line = self._job.hear()
        answer = msgspec.json.decode(line, type=Answer) if line else Answer(True, cut or 0)
        if answer.was_cut:
            undone = msgspec.msgpack.decode(self._left.read_bytes(), type=Undone)
            self._left.unlink()
            if do == "receipts":
                self._undo(undone)
        return answer

    def _undo(self, undone: Undone) -> None:
        for name in filter(os.path.exists, {*undone.added, *undone.content}):
            if name in undone.added and self._chance.random() < 0.5:
                os.remove(name)
            else:
                os.truncate(name, self._chance.randrange(os.path.getsize(name) + 1))
        for name, content in undone.removed.items():
            if os.path.isdir(os.path.dirname(name)) and not os.path.exists(name):
                Path(name).write_bytes(content)

    def told(self) -> tuple[Claims, int]:
        """Makes receipts, after which the power may go. Returns what they claim, and the batch of the newest."""
        self._receipts.write_text("[]")
        self.order("receipts")
        messages = json.loads(self._receipts.read_text())
        claims: Claims = {}
        batch = 0
        for topic, payload in messages:
            if topic == LANDED_TOPIC:
                batch = decode_landed(payload.encode()).batch
                continue
            for one in decode_receipt(payload.encode()).epochs:
                claims[origin_of_topic(topic), one.epoch] = numbers(one)
        return claims, batch

    def durable(self) -> tuple[Claims, int]:
        """Returns what is settled by what the disk has, and its last batch, as the next job finds it."""
        if not has_tables(self.tables):
            return {}, 0
        tables = Tables(None, self.tables)
        batch = tables.last_counting()
        found = find_settled(read_facts(tables, batch))
        return {(origin, one.epoch): numbers(one) for origin, epochs in found for one in epochs}, batch

    def close(self) -> None:
        self._job.end()


def numbers(one: Settled) -> set[int]:
    return {number for first, last in [(1, one.high), *one.runs] for number in range(first, last + 1)}


@pytest.fixture
def site(tmp_path: Path, seed: int) -> Iterator[Site]:
    site = Site(tmp_path, random.Random(seed))
    yield site
    site.close()


def check(site: Site) -> None:
    """Makes receipts after a kill, has the power go, and holds them against what is left on the disk."""
    claims, batch = site.told()
    durable, last = site.durable()
    assert batch <= last
    for stream, claimed in claims.items():
        assert claimed <= durable.get(stream, set()), stream


def test_no_receipt_claims_what_a_job_that_was_killed_around_its_commits_had_not_made_durable(site: Site) -> None:
    """A run reads some more of the logs than the one before, so these cuts are from its last commits on."""
    killed = 0
    site.land()
    operations = site.order("ingest").operations
    for before_end in range(-3, 7):
        site.land()
        killed += site.order("ingest", operations - before_end).was_cut
        check(site)
        operations = site.order("ingest").operations
    claims, _ = site.told()
    assert killed >= 8 and claims["attic", 0xCAFE]
    assert claims == site.durable()[0]


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_no_receipt_of_a_thousand_kills_claims_what_was_not_durable(site: Site, seed: int) -> None:
    chance = random.Random(seed)
    site.land()
    killed, operations = 0, site.order("ingest").operations  # without its tables no receipt is made
    while killed < KILLS_LONG:
        site.land()
        answer = site.order("ingest", chance.randrange(operations + 30))
        killed += answer.was_cut
        operations = operations if answer.was_cut else answer.operations
        check(site)
    site.order("ingest")
    claims, batch = site.told()
    assert len(claims["attic", 0xCAFE]) > killed and batch
