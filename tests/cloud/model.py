"""What the tables have to hold, in plain Python: dictionaries of messages, with no idea of files, commits or Spark.

A message tells what becomes of it: its maker knows its readings, so no decoder is asked here.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from cloud.landing.file import Row
from tests.cloud.lake import Content, content_of

Identity = tuple[str, int, int]
YEAR_10000_MS = 253_402_300_800_000


class Reading(NamedTuple):
    device: str
    metric: str
    value: float
    has_time: bool = False


class Message(NamedTuple):
    """A landed message and what it becomes: readings, always or by the decoder of one's own alone, or a statement."""

    row: Row
    readings: tuple[Reading, ...] = ()
    own_readings: tuple[Reading, ...] = ()
    statement: int | None = None

    @property
    def identity(self) -> Identity:
        return self.row.origin, self.row.epoch, self.row.seq

    @property
    def has_time(self) -> bool:
        return self.row.received_ms is None or 0 <= self.row.received_ms < YEAR_10000_MS

    def decode(self, with_own: bool) -> tuple[Reading, ...] | None:
        """Returns its readings; None if it is undecodable."""
        found = self.readings or (self.own_readings if with_own else ())
        return found if self.has_time and (found or self.statement is not None) else None


class Trip(NamedTuple):
    """A device's messages 1 to `last`, over a route that stated all of them in a message of `stated_in`, some dropped
    for a reason."""

    origin: str
    epoch: int
    last: int
    dropped: Mapping[int, str]
    stated_in: Identity


class Model:
    """The tables after the same steps."""

    def __init__(self) -> None:
        self.messages: dict[Identity, tuple[Message, str, int]] = {}
        self.readings: list[tuple[Any, ...]] = []
        self.undecodable: dict[Identity, tuple[str, int]] = {}
        self.conflicts: dict[tuple[Identity, Content], tuple[str, int]] = {}
        self.batches: list[tuple[int, ...]] = []
        self.files: dict[str, int] = {}

    def ingest(self, landed: Mapping[str, Sequence[Message]], with_own: bool = False) -> None:
        """Takes in the files that are new. Of equal identities the first counts, in the order of the files' names."""
        files = sorted(landed.keys() - self.files.keys())
        if not files:
            return
        batch = len(self.batches) + 1
        new = duplicates = undecodable = conflicts = 0
        before = len(self.readings)
        for file, message in [(name, one) for name in files for one in landed[name]]:
            identity, content = message.identity, content_of(message.row)
            if identity not in self.messages:
                self.messages[identity] = message, file, batch
                if (found := message.decode(with_own)) is None:
                    self.undecodable[identity] = file, batch
                    undecodable += 1
                else:
                    self._add_readings(message, found, batch)
                    new += 1
            elif content == content_of(self.messages[identity][0].row) or (identity, content) in self.conflicts:
                duplicates += 1
            else:
                self.conflicts[identity, content] = file, batch
                conflicts += 1
        rows = sum(len(landed[file]) for file in files)
        readings = len(self.readings) - before
        aside = undecodable + conflicts
        self.batches.append((batch, len(files), rows, new, duplicates, aside, undecodable, conflicts, readings))
        self.files.update(dict.fromkeys(files, batch))

    def requarantine(self, with_own: bool) -> None:
        """Decodes the undecodable messages again."""
        if not self.undecodable:
            return
        batch = len(self.batches) + 1
        waited, before = len(self.undecodable), len(self.readings)
        for identity in [*self.undecodable]:
            message = self.messages[identity][0]
            if (found := message.decode(with_own)) is not None:
                self._add_readings(message, found, batch)
                del self.undecodable[identity]
        left = len(self.undecodable)
        self.batches.append((batch, 0, waited, waited - left, 0, left, left, 0, len(self.readings) - before))

    def _add_readings(self, message: Message, found: Sequence[Reading], batch: int) -> None:
        otherwise = "landing" if message.row.received_ms is None else "gateway"
        for record, (device, metric, value, has_time) in enumerate(found):
            by = "device" if has_time else otherwise
            self.readings.append((*message.identity, record, device, metric, value, by, batch))

    def quarantine(self) -> Iterator[tuple[Any, ...]]:
        for identity, (file, batch) in self.undecodable.items():
            yield "undecodable", *identity, self.messages[identity][0].row.payload, file, batch
        for (identity, (_, payload)), (file, batch) in self.conflicts.items():
            yield "conflict", *identity, payload, file, batch

    def gaps(self, trips: Sequence[Trip]) -> Iterator[tuple[Any, ...]]:
        """Yields origin, epoch, first and last number, place and reason of each gap.

        Numbers begin at 1, and end with the last that arrived or was stated. What was stated and not dropped is lost.
        A statement counts only for an origin of which a message has arrived.
        """
        arrived: dict[tuple[str, int], set[int]] = {}
        for origin, epoch, seq in self.messages:
            arrived.setdefault((origin, epoch), set()).add(seq)
        stated = {(trip.origin, trip.epoch): trip for trip in trips if trip.stated_in in self.messages}
        for stream, there in arrived.items():
            trip = stated.get(stream)
            last = max([*there, trip.last if trip else 0])
            missing = [seq for seq in range(1, last + 1) if seq not in there]

            def kind(seq: int, there: set[int] = there, trip: Trip | None = trip) -> tuple[str, str]:
                middle = "head" if seq < min(there) else "middle"
                place = "tail" if seq > max(there) else middle
                return place, trip.dropped.get(seq, "lost") if trip else "unknown"

            runs = groupby(enumerate(missing), lambda one: (one[1] - one[0], *kind(one[1])))
            for (_, place, reason), run in runs:
                seqs = [seq for _, seq in run]
                yield *stream, seqs[0], seqs[-1], place, reason

    def completeness(self, trips: Sequence[Trip]) -> dict[tuple[str, int], tuple[int, int]]:
        """Returns how many messages of each origin and epoch arrived, and how many are in gaps."""
        found: dict[tuple[str, int], tuple[int, int]] = {}
        for origin, epoch, _ in self.messages:
            arrived, missing = found.get((origin, epoch), (0, 0))
            found[origin, epoch] = arrived + 1, missing
        for origin, epoch, lo, hi, *_ in self.gaps(trips):
            arrived, missing = found.get((origin, epoch), (0, 0))
            found[origin, epoch] = arrived, missing + hi - lo + 1
        return found
