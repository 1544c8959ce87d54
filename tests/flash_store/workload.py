"""A seeded workload on a log and, beside it, the model that knows what must be there: a dict and two sets.

Runs on MicroPython too.
"""

import random

from flash_store.errors import StoreFull
from flash_store.incoming import Incoming
from flash_store.log import Log

TOPIC = "telemetry/garage"
KEYS = ("a", "b", "c")
IDENTIFIERS_MAX = 6


def payload_of(message_id: int, length: int) -> bytes:
    """What the message of this id carries: made from the id alone, so that an invented one shows."""
    return (b"%d:" % message_id + bytes((message_id * 7 + i) & 0xFF for i in range(length)))[: max(length, 8)]


def qos_of(message_id: int) -> int:
    return message_id % 2 + 1


class Model:
    """What was promised: `stored` by append, `acknowledged` in RAM, of these `forgotten` for good, `received` those
    whose PUBREC was noted; packet identifiers `remembered`; `settings`. `changing` is the one of the last two that is
    on its way, with its new value (None: removed)."""

    def __init__(self) -> None:
        self.stored: dict[int, bytes] = {}
        self.in_hand: tuple[int, bytes] | None = None  # being appended
        self.acknowledged: set[int] = set()
        self.forgotten: set[int] = set()
        self.received: set[int] = set()
        self.remembered: set[int] = set()
        self.settings: dict[str, bytes] = {}
        self.changing: tuple = ()

    def copy(self) -> "Model":
        other = Model()
        other.stored = dict(self.stored)
        other.in_hand = self.in_hand
        other.acknowledged = set(self.acknowledged)
        other.forgotten = set(self.forgotten)
        other.received = set(self.received)
        other.remembered = set(self.remembered)
        other.settings = dict(self.settings)
        other.changing = self.changing
        return other

    def note_change(self, key, value) -> None:
        """A setting (a text) or a remembered packet identifier (a number) has this value from now on."""
        if isinstance(key, int):
            self.remembered.discard(key)
            if value is not None:
                self.remembered.add(key)
        elif value is None:
            self.settings.pop(key, None)
        else:
            self.settings[key] = value

    def live(self) -> list[int]:
        return sorted(set(self.stored) - self.acknowledged)

    def check(self, log: Log) -> None:
        """Nothing durable lost, nothing invented, nothing done come back, order kept."""
        ids = []
        for message_id, qos, retain, topic, payload in log.messages():
            ids.append(message_id)
            expected = self.stored.get(message_id)
            if self.in_hand and self.in_hand[0] == message_id:
                expected = self.in_hand[1]
            assert expected == payload, f"message {message_id} was invented"
            assert (qos, retain, topic) == (qos_of(message_id), message_id % 3 == 0, TOPIC)
            assert message_id not in self.forgotten, f"message {message_id} came back"
        assert ids == sorted(ids) and len(ids) == len(set(ids)) == len(log), ids
        lost = [message_id for message_id in self.live() if message_id not in ids]
        assert not lost, f"lost {lost}"
        assert log.last_id >= max(self.stored, default=0)
        forgotten = [message_id for message_id in self.received & set(ids) if not log.has_pubrec(message_id)]
        assert not forgotten, f"PUBREC of {forgotten} was forgotten"
        self.check_settings(log)

    def check_settings(self, log: Log) -> None:
        """Each has its last value, or the one that was on its way."""
        for key in KEYS:
            allowed = [self.settings.get(key)]
            if self.changing[:1] == (key,):
                allowed.append(self.changing[1])
            assert log.settings.get(key) in allowed, f"setting {key} is none of {allowed}"
        incoming = Incoming(log.settings)
        for identifier in range(1, IDENTIFIERS_MAX + 1):
            if self.changing[:1] != (identifier,):
                expected = identifier in self.remembered
                assert (identifier in incoming) == expected, f"received {identifier}: expected {expected}"


class Workload:
    """Appends, acknowledges out of order, flushes and idles as the seed says; some messages are stragglers for long."""

    def __init__(self, log: Log, model: Model, seed: int, length_max: int) -> None:
        self.log, self.model, self.length_max = log, model, length_max
        random.seed(seed)
        self.full = 0

    def step(self) -> None:
        roll = random.getrandbits(8)
        if roll < 100:
            self.append()
        elif roll < 104:
            self.note_pubrec()
        elif roll < 107:
            self.change_setting()
        elif roll < 110:
            self.change_received()
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
        assert self.log.append(TOPIC, payload, qos_of(message_id), message_id % 3 == 0) == message_id
        self.model.stored[message_id] = payload

    def note_pubrec(self) -> None:
        candidates = [m for m in self.model.live() if qos_of(m) == 2]
        if candidates:
            message_id = candidates[random.getrandbits(10) % len(candidates)]
            try:
                assert self.log.note_pubrec(message_id)
            except StoreFull:
                return
            self.noted(message_id)

    def noted(self, message_id: int) -> None:
        self.model.received.add(message_id)

    def change_setting(self) -> None:
        key = KEYS[random.getrandbits(10) % len(KEYS)]
        value = b"x" * (random.getrandbits(10) % 20) if random.getrandbits(2) else None
        if value is None:
            self.change(key, None, lambda: self.log.settings.remove(key))
        else:
            self.change(key, value, lambda: self.log.settings.set(key, value))

    def change_received(self) -> None:
        identifier = random.getrandbits(10) % IDENTIFIERS_MAX + 1
        if identifier in self.model.remembered:
            self.change(identifier, None, lambda: Incoming(self.log.settings).remove(identifier))
        else:
            self.change(identifier, b"", lambda: Incoming(self.log.settings).add(identifier))

    def change(self, key, value, do) -> None:
        self.model.changing = (key, value)
        try:
            do()
        except StoreFull:
            return
        finally:
            self.model.changing = ()
        self.changed(key, value)

    def changed(self, key, value) -> None:
        self.model.note_change(key, value)

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
