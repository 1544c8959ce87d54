"""The workload of the figures about messages, and its cost on a queue."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from flash_store.errors import StoreFull
from tools.lab.bench.flash.metered_flash import SECTOR_SIZE, Cost, MeteredFlash

SECTORS = 64
TOPIC = "telemetry/garage"
OUTSTANDING = 8  # unacknowledged messages
STRAGGLER = 10  # of a workload with stragglers one message in ten is never acknowledged


@dataclass(frozen=True)
class Workload:
    """The work of a queue on 64 sectors. `size` is topic and payload in bytes. Without `is_idle` nothing calls `idle`.
    Without `is_warm` the counting begins at once, on a queue that was just mounted."""

    messages: int
    size: int = 128
    qos: int = 1
    has_stragglers: bool = False
    is_idle: bool = True
    is_warm: bool = True

    @property
    def warm_up(self) -> int:
        """The messages before the counting; they fill the ring once, so that erases come as often as later."""
        return SECTOR_SIZE * SECTORS // self.size if self.is_warm else 0

    @property
    def payload(self) -> bytes:
        return b"p" * (self.size - len(TOPIC))


class Queue(Protocol):
    """A queue for a workload. `append` and `note_pubrec` are durable on return; they raise StoreFull without room."""

    def append(self, topic: str, payload: bytes, qos: int) -> int: ...

    def note_pubrec(self, message_id: int) -> bool: ...

    def acknowledge(self, message_id: int) -> bool: ...

    def idle(self) -> None: ...


@dataclass
class Use:
    """The cost of a workload after its warm-up: in total, in `append`, in `note_pubrec`, and the highest of each count
    in one `append`. `erases` are by sector."""

    messages: int
    total: Cost
    erases: list[int]
    append: Cost
    pubrec: Cost
    worst: Cost

    @property
    def programmed(self) -> float:
        """Bytes for each message."""
        return self.total.programmed / self.messages

    @property
    def erases_per_message(self) -> float:
        return self.total.erases / self.messages

    @property
    def read_on_append(self) -> float:
        """Bytes for each `append`."""
        return self.append.read / self.messages

    @property
    def wear_spread(self) -> int:
        return max(self.erases) - min(self.erases)

    @property
    def wear_ratio(self) -> float:
        """The erases of the most worn sector, divided by the average; 1 without erases."""
        return max(self.erases) * len(self.erases) / sum(self.erases) if any(self.erases) else 1.0

    def years(self, cycles: int) -> float:
        """The time until the most worn sector has had this many erases, at one message a second."""
        seconds_per_year = 365.25 * 86400
        return cycles * self.messages / max(1, *self.erases) / seconds_per_year


def run(workload: Workload, flash: MeteredFlash, queue: Queue) -> Use:
    """Runs a workload: for each message it appends, acknowledges the oldest message, and lets the queue be idle."""
    turns = _turns(workload, flash, queue)
    for _ in islice(turns, workload.warm_up):
        pass
    before, erased = flash.cost(), list(flash.erase_counts)
    append, pubrec, worst = Cost(), Cost(), Cost()
    for one_append, one_pubrec in islice(turns, workload.messages):
        append += one_append
        pubrec += one_pubrec
        worst = worst.worst(one_append)
    erases = [now - then for now, then in zip(flash.erase_counts, erased, strict=True)]
    return Use(workload.messages, flash.cost() - before, erases, append, pubrec, worst)


def fill(queue: Queue) -> int:
    """Appends until the queue is full; returns how many messages fit."""
    taken = 0
    try:
        while True:
            queue.append(TOPIC, Workload(0).payload, 1)
            taken += 1
    except StoreFull:
        return taken


def _turns(workload: Workload, flash: MeteredFlash, queue: Queue) -> Iterator[tuple[Cost, Cost]]:
    """One message more each, without an end; yields the cost of its `append` and of the `note_pubrec` that came."""
    outstanding: deque[int] = deque()
    while True:
        start = flash.cost()
        message_id = queue.append(TOPIC, workload.payload, workload.qos)
        appended = noted = flash.cost()
        if not workload.has_stragglers or message_id % STRAGGLER:
            outstanding.append(message_id)
        if len(outstanding) > OUTSTANDING:
            if workload.qos == 2:
                queue.note_pubrec(outstanding[0])
                noted = flash.cost()
            queue.acknowledge(outstanding.popleft())
        if workload.is_idle:
            queue.idle()
        yield appended - start, noted - appended
