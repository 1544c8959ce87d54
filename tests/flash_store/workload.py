"""A seeded workload on a log and, beside it, the model that knows what must be there: a dict and two sets.

Runs on MicroPython too.
"""

import random

from flash_store.errors import StoreFull
from flash_store.log import Log

TOPIC = "telemetry/garage"


def payload_of(message_id: int, length: int) -> bytes:
    """What the message of this id carries: made from the id alone, so that an invented one shows."""
    return (b"%d:" % message_id + bytes((message_id * 7 + i) & 0xFF for i in range(length)))[: max(length, 8)]


class Model:
    """What was promised: `stored` by append, `acknowledged` in RAM, of these `forgotten` for good."""

    def __init__(self) -> None:
        self.stored: dict[int, bytes] = {}
        self.in_hand: tuple[int, bytes] | None = None  # being appended
        self.acknowledged: set[int] = set()
        self.forgotten: set[int] = set()

    def copy(self) -> "Model":
        other = Model()
        other.stored = dict(self.stored)
        other.in_hand = self.in_hand
        other.acknowledged = set(self.acknowledged)
        other.forgotten = set(self.forgotten)
        return other

    def live(self) -> list[int]:
        return sorted(set(self.stored) - self.acknowledged)

    def check(self, log: Log) -> None:
        """Nothing durable lost, nothing invented, nothing done come back, order kept."""
        found = list(log.messages())
        ids = [message[0] for message in found]
        assert ids == sorted(ids) and len(ids) == len(set(ids)) == len(log), ids
        allowed = dict(self.stored)
        if self.in_hand:
            allowed[self.in_hand[0]] = self.in_hand[1]
        for message_id, qos, retain, topic, payload in found:
            assert allowed.get(message_id) == payload, f"message {message_id} was invented"
            assert (qos, retain, topic) == (1, message_id % 3 == 0, TOPIC)
            assert message_id not in self.forgotten, f"message {message_id} came back"
        lost = [message_id for message_id in self.live() if message_id not in ids]
        assert not lost, f"lost {lost}"
        assert log.last_id >= max(self.stored, default=0)


class Workload:
    """Appends, acknowledges out of order, flushes and idles as the seed says; some messages are stragglers for long."""

    def __init__(self, log: Log, model: Model, seed: int, length_max: int) -> None:
        self.log, self.model, self.length_max = log, model, length_max
        random.seed(seed)
        self.full = 0

    def step(self) -> None:
        roll = random.getrandbits(8)
        if roll < 110:
            self.append()
        elif roll < 225:
            self.acknowledge()
        elif roll < 235:
            self.flush()
        elif roll < 254:
            self.log.idle()
        else:
            self.drain()

    def append(self) -> None:
        try:
            self.store(random.getrandbits(10) % self.length_max)
        except StoreFull:
            self.full += 1
        self.model.in_hand = None

    def store(self, length: int) -> None:
        message_id = self.log.last_id + 1
        payload = payload_of(message_id, length)
        self.model.in_hand = (message_id, payload)
        assert self.log.append(TOPIC, payload, 1, message_id % 3 == 0) == message_id
        self.model.stored[message_id] = payload

    def acknowledge(self) -> None:
        # Every 16th message waits until the store is full of such.
        candidates = [m for m in self.model.live() if m % 16 or self.full > 20]
        if candidates:
            self.full = 0 if self.full > 20 else self.full
            message_id = candidates[random.getrandbits(10) % min(8, len(candidates))]
            self.done(message_id)

    def done(self, message_id: int) -> None:
        self.model.acknowledged.add(message_id)
        assert self.log.acknowledge(message_id)
        self.note_forgotten()

    def flush(self) -> None:
        self.log.flush()
        self.note_forgotten()

    def drain(self) -> None:
        self.acknowledge_all()
        self.flush()
        for _ in range(16):  # sectors go round with nothing but acknowledgements in them
            self.append()
            self.acknowledge_all()
            self.log.idle()

    def acknowledge_all(self) -> None:
        for message_id in self.model.live():
            self.done(message_id)

    def note_forgotten(self) -> None:
        if self.log.stats()["waiting"] == 0:
            self.model.forgotten |= self.model.acknowledged
