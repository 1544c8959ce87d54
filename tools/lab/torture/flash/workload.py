"""A seeded workload on a log, with the model beside it."""

import random
from dataclasses import dataclass

from flash_store.errors import StoreFull
from flash_store.incoming import Incoming
from flash_store.log import Log
from tools.lab.sim.nor import NorFlash
from tools.lab.torture.flash.model import ACK_BATCH, IDENTIFIERS, KEYS, Broken, Message, Model, expect

EPOCH = 0x12345678
STRAGGLER = 16  # every 16th message waits for its acknowledgement until the store is full
PHASE = 80  # steps, on the average, of filling or draining
BAD_SECTORS_MAX = 1
SECTORS_MIN = 8  # good ones


@dataclass(frozen=True)
class Scenario:
    """What kind of store is tortured; `goes_bad`: sectors do; `drifts`, `has_ecc`: see `NorFlash`."""

    granule: int
    sector_size: int
    on_full: str = "reject_new"
    goes_bad: bool = False
    drifts: bool = False
    has_ecc: bool = False

    @property
    def name(self) -> str:
        faults = {"bad sectors": self.goes_bad, "drift": self.drifts, "ECC": self.has_ecc}
        return ", ".join([f"granule {self.granule}, {self.on_full}", *[name for name, on in faults.items() if on]])


SCENARIOS = (
    Scenario(16, 512),
    Scenario(16, 512, "drop_oldest"),
    Scenario(8, 512, goes_bad=True),
    Scenario(32, 512),
    Scenario(16, 512, "drop_oldest", goes_bad=True),
    Scenario(32, 1024, "drop_oldest"),
    Scenario(8, 512),
    Scenario(256, 4096, goes_bad=True),
    Scenario(256, 4096, "drop_oldest"),
    Scenario(16, 512, drifts=True),
    Scenario(16, 512, "drop_oldest", drifts=True, has_ecc=True),
    Scenario(8, 512, has_ecc=True),
    Scenario(32, 1024, drifts=True, has_ecc=True),
)


def message_of(message_id: int, length: int) -> Message:
    """What the message of this id holds: it follows from the id, so that an invented one shows."""
    payload = b"%d:" % message_id + bytes((message_id * 7 + at) & 0xFF for at in range(length))
    return message_id % 2 + 1, message_id % 3 == 0, f"telemetry/{message_id % 5}", payload


class Workload:
    """Steps on a store. It fills and drains in turns, so that it wraps, relocates and gets full."""

    def __init__(self, scenario: Scenario, seed: int, epoch: int = EPOCH) -> None:
        sectors = SECTORS_MIN + (BAD_SECTORS_MAX if scenario.goes_bad else 0)
        flash = NorFlash(scenario.sector_size, sectors, scenario.granule, seed)
        flash.cells.drifts, flash.cells.has_ecc = scenario.drifts, scenario.has_ecc
        Log.format(flash, epoch, scenario.granule)
        self._begin(scenario, flash, Model(scenario.drifts), seed)
        self.mount()

    @classmethod
    def resume(cls, scenario: Scenario, flash: NorFlash, model: Model, seed: int) -> "Workload":
        """One that goes on with a store after a power cut, with `mount` first."""
        work = cls.__new__(cls)
        work._begin(scenario, flash, model, seed)
        return work

    def _begin(self, scenario: Scenario, flash: NorFlash, model: Model, seed: int) -> None:
        self.scenario, self.flash, self.model = scenario, flash, model
        self.random = random.Random(seed)
        self.ever: dict[int, Message] = {}  # all that was appended
        self.full = 0
        self._fills = True
        self._length_max = scenario.sector_size // 4

    def mount(self) -> None:
        """Restart, with or without a power cut before."""
        self.flash.drift()
        self.log = Log(self.flash, self.scenario.on_full)
        self.model.after_mount(self.log)

    def step(self) -> None:
        """Do one thing. Raises Broken, PowerCut."""
        actions = (self.append, self.acknowledge, self.idle, self.flush, self.note_pubrec, self.change_setting)
        others = (self.change_received, self.tell, self.drain, self.mount, self.break_sector)
        weights = (60 if self._fills else 30, 15 if self._fills else 60, 12, 4, 5, 3, 4, 1, 1, 1, 1)
        self.random.choices(actions + others, weights)[0]()
        if self.random.randrange(PHASE) == 0:
            self._fills = not self._fills

    def append(self) -> None:
        length = self.random.randrange(self._length_max)
        message_id = self.log.last_id + 1
        message = message_of(message_id, length)
        qos, retain, topic, payload = message
        self.model.appending = (message_id, message)
        try:
            given = self.log.append(topic, payload, qos, retain)
        except StoreFull:
            self.full += 1
            self.model.appending = None
            self.model.find_dropped(self.log)
            if self.scenario.on_full == "drop_oldest" and self.log.stats()["free"]:
                raise Broken("an append was refused though the oldest may be dropped") from None
            return
        expect(given == message_id, f"append gave {given}, expected {message_id}")
        self.ever[given] = message
        self.model.appended(given, message, self.log)

    def acknowledge(self) -> None:
        waits = self.full < 20
        candidates = [i for i in self.model.stored if i % STRAGGLER or not waits]
        if candidates:
            self.full = self.full if waits else 0
            self.done(sorted(candidates)[self.random.randrange(min(8, len(candidates)))])

    def done(self, message_id: int) -> None:
        """Acknowledge this one."""
        self.model.acknowledged[message_id] = self.model.stored.pop(message_id)
        expect(self.log.acknowledge(message_id), f"{message_id} is not here to be acknowledged")
        if len(self.model.acknowledged) >= ACK_BATCH:
            self.model.flushed(self.log)

    def flush(self) -> None:
        self.log.flush()
        self.model.flushed(self.log)

    def idle(self) -> None:
        self.log.idle()

    def note_pubrec(self) -> None:
        candidates = sorted(i for i, message in self.model.stored.items() if message[0] == 2)
        if candidates:
            message_id = self.random.choice(candidates)
            self.model.noting = message_id
            try:
                expect(self.log.note_pubrec(message_id), f"{message_id} is not here to be received")
                self.model.received.add(message_id)
            except StoreFull:
                pass
            self.model.noting = None

    def change_setting(self) -> None:
        key = self.random.choice(KEYS)
        value = self.random.randbytes(self.random.randrange(24)) if self.random.randrange(4) else None
        self.model.changing = (key, value)
        try:
            if value is None:
                self.log.settings.remove(key)
            else:
                self.log.settings.set(key, value)
        except StoreFull:
            self.model.changing = None
        else:
            self.model.changed(key, value)

    def change_received(self) -> None:
        identifier = self.random.choice(IDENTIFIERS)
        value = None if identifier in self.model.remembered else b""
        self.model.changing = (identifier, value)
        try:
            incoming = Incoming(self.log.settings)
            (incoming.remove if value is None else incoming.add)(identifier)
        except StoreFull:
            self.model.changing = None
        else:
            self.model.changed(identifier, value)

    def tell(self) -> None:
        """Gaps go upstream, all or some, and are forgotten."""
        gaps = self.log.gaps()
        if gaps:
            self.model.telling = self.random.sample(gaps, self.random.randint(1, len(gaps)))
            try:
                self.log.forget_gaps(self.model.telling)
            except StoreFull:
                self.model.telling = None
                return
            self.model.flushed(self.log)
            self.model.told_of(self.log)

    def drain(self) -> None:
        """Acknowledge all; then sectors go round with nothing but acknowledgements in them."""
        for _ in range(6):
            for message_id in sorted(self.model.stored):
                self.done(message_id)
            self.flush()
            self.append()
            self.idle()

    def break_sector(self) -> None:
        """A sector takes no erase or no program any more, and the device tells or does not."""
        bad = self.flash.bad_erases | self.flash.bad_programs
        if self.scenario.goes_bad and len(bad) < BAD_SECTORS_MAX:
            which = self.random.choice((self.flash.bad_erases, self.flash.bad_programs))
            which.add(self.random.randrange(self.flash.sector_count))
            self.flash.silent = self.random.randrange(2) == 0

    def prove_usable(self, may_be_full: bool = False) -> None:
        """Whatever happened: when all is acknowledged, there is room, also for a setting, and it all stays.

        But many cuts, or some where a sector died while the store was full, may use up all room
        (docs/explanation/flash-store.md, "Where it ends").
        """
        for message_id in sorted(self.model.stored):
            self.done(message_id)
        self.flush()
        if (may_be_full or self.scenario.goes_bad) and not self.log.stats()["free"]:
            return
        expect(not self.model.acknowledged, "acknowledgements find no room though all is acknowledged")
        for _ in range(3):
            self.idle()
            full = self.full
            self.append()
            expect(self.full == full, "no append succeeds though all is acknowledged")
        self.mount()
        expect(len(self.log) == 3, f"3 messages were appended, {len(self.log)} are there")
