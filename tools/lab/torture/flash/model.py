"""A model of a store in dicts and sets: after each mount it says what the store must hold."""

from flash_store.incoming import Incoming
from flash_store.log import Log

Message = tuple[int, bool, str, bytes]  # QoS, retain, topic, payload
IDENTIFIERS = range(1, 9)
KEYS = ("clock", "identifiers", "configuration")
ACK_BATCH = 8
PACKET_IDENTIFIERS = 65535


class Broken(AssertionError):
    """The store broke a promise; the text says which."""


def expect(holds: bool, promise: str) -> None:
    """Raises Broken where the promise does not hold."""
    if not holds:
        raise Broken(promise)


def is_told(log: Log, message_id: int, reason: str) -> bool:
    """True when a gap of this reason covers the id."""
    return any(first <= message_id <= last for first, last, _, why in log.gaps() if why == reason)


def _is_told_at_all(log: Log, message_id: int) -> bool:
    return any(first <= message_id <= last for first, last, _, _ in log.gaps())


class Model:
    """`stored` is not acknowledged; `acknowledged` may come back with a mount, `done` may not, nor may `dropped`.

    `appending`, `noting`, `changing` and `telling` are on their way when the power goes: a message, the id of a PUBREC,
    a setting or packet identifier and its new value, gaps. `torn` ids were left out; of the gaps `told`
    nothing is kept any more. Where bits `drift` messages may be damaged: `damaged` ones are gone, and a range has to
    tell of each, whatever its reason.
    """

    def __init__(self, drifts: bool = False) -> None:
        self.drifts = drifts
        self.damaged: set[int] = set()
        self.stored: dict[int, Message] = {}
        self.acknowledged: dict[int, Message] = {}
        self.done: set[int] = set()
        self.dropped: set[int] = set()
        self.torn: set[int] = set()
        self.unreadable: set[int] = set()
        self.told: set[int] = set()
        self.received: set[int] = set()
        self.remembered: set[int] = set()
        self.settings: dict[str, bytes] = {}
        self.appending: tuple[int, Message] | None = None
        self.noting: int | None = None
        self.changing: tuple[str | int, bytes | None] | None = None
        self.telling: list[tuple[int, int, int, str]] | None = None
        self.last_id = 0
        self.boot_id = 0
        self.was_full = False

    def copy(self) -> "Model":
        other = Model()
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, dict | set) else value)
        return other

    def appended(self, message_id: int, message: Message, log: Log) -> None:
        """An append returned."""
        expect(message_id > self.last_id, f"id {message_id} was given out twice")
        self._note_torn(message_id - 1, log)
        self.last_id = message_id
        self.stored[message_id] = message
        self.appending = None
        self.find_dropped(log)
        expect(message_id - min(self.stored) < PACKET_IDENTIFIERS, f"{message_id} has a packet identifier in use")

    def flushed(self, log: Log) -> None:
        """A flush returned: where nothing waits, nothing that was acknowledged comes back."""
        if self.acknowledged and log.stats()["waiting"] == 0:
            self.done |= set(self.acknowledged)
            self.acknowledged.clear()

    def changed(self, key: str | int, value: bytes | None) -> None:
        """A setting (a text) or a packet identifier received (a number) has this value from now on."""
        self.changing = None
        if isinstance(key, int):
            self.remembered.discard(key)
            if value is not None:
                self.remembered.add(key)
        elif value is None:
            self.settings.pop(key, None)
        else:
            self.settings[key] = value

    def find_dropped(self, log: Log) -> None:
        """What an append dropped to make room."""
        if len(self.stored) > len(log):
            found = {message[0] for message in log.messages()}
            gone = set(self.stored) - found
            lost = [message_id for message_id in sorted(gone) if not is_told(log, message_id, "dropped")]
            expect(not lost, f"lost {lost}")
            expect(max(gone) < min(found, default=max(gone) + 1), f"dropped {sorted(gone)}, which are not the oldest")
            for message_id in gone:
                self.stored.pop(message_id)
            self.dropped |= gone

    def after_mount(self, log: Log) -> None:
        """Check all that must have stayed, then go on from what is there."""
        if self.was_full:
            self._end_of_room(log)
        expect(log.boot_id > self.boot_id, f"boot_id {log.boot_id} after {self.boot_id}")
        self.boot_id = log.boot_id
        self.was_full = not log.stats()["free"]
        found = self._check_messages(log)
        if self.appending and self.appending[0] in found:
            self.last_id = self.appending[0]
            self.stored[self.appending[0]] = self.appending[1]
        self.appending = None
        for message_id, message in self.acknowledged.items():
            if message_id in found:
                self.stored[message_id] = message
            else:
                self.done.add(message_id)
        self.acknowledged.clear()
        if self.drifts:
            self._find_damaged(log, set(found))
        self.find_dropped(log)
        expect(log.last_id >= self.last_id, f"last_id went back from {self.last_id} to {log.last_id}")
        self._note_torn(log.last_id, log)
        self._check_received(log, found)
        self._check_settings(log)
        self._check_gaps(log)

    def _find_damaged(self, log: Log, found: set[int]) -> None:
        """What has drifted away."""
        for message_id in sorted(set(self.stored) - found):
            reasons = [why for first, last, _, why in log.gaps() if first <= message_id <= last]
            expect(bool(reasons), f"{message_id} is lost and no range tells")
            if reasons != ["dropped"]:
                self.stored.pop(message_id)
                self.damaged.add(message_id)

    def _end_of_room(self, log: Log) -> None:
        """Without any room a boot_id, or an id that was left out, cannot be made durable, and an erase may leave an
        unreadable record of an acknowledged message (docs/explanation/flash-store.md, "Where it ends")."""
        self.boot_id = min(self.boot_id, log.boot_id - 1)
        while self.last_id > log.last_id and self.last_id in self.torn:
            self.torn.remove(self.last_id)
            self.last_id -= 1
        for first, last, count, reason in log.gaps():
            if reason == "unreadable" and last - first + 1 == count:
                self.unreadable |= set(range(first, last + 1)) & (self.acknowledged.keys() | self.done)

    def _check_messages(self, log: Log) -> dict[int, Message]:
        messages = list(log.messages())
        ids = [message[0] for message in messages]
        expect(ids == sorted(set(ids)), f"order lost: {ids}")
        expect(len(log) == len(ids), f"{len(log)} live, {len(ids)} readable")
        allowed = self.stored | self.acknowledged | dict([self.appending] if self.appending else [])
        for message_id, *message in messages:
            for gone in ("done", "dropped", "torn", "damaged"):
                expect(message_id not in getattr(self, gone), f"{message_id} came back, it was {gone}")
            expect(allowed.get(message_id) == tuple(message), f"{message_id} was invented")
        return {message[0]: allowed[message[0]] for message in messages}

    def _note_torn(self, last_id: int, log: Log) -> None:
        for message_id in range(self.last_id + 1, last_id + 1):
            is_torn = is_told(log, message_id, "torn")
            is_damaged = self.drifts and is_told(log, message_id, "damaged")
            expect(is_torn or is_damaged, f"id {message_id} was left out and no gap tells")
            (self.torn if is_torn else self.damaged).add(message_id)
        self.last_id = max(self.last_id, last_id)

    def _check_received(self, log: Log, found: dict[int, Message]) -> None:
        for message_id in found:
            expected = message_id in self.received
            if log.has_pubrec(message_id) != expected:
                expect(self.noting == message_id, f"PUBREC of {message_id}: expected {expected}")
                self.received.add(message_id)
        self.noting = None

    def _check_settings(self, log: Log) -> None:
        changing, new = self.changing or (None, None)
        if isinstance(changing, str) and log.settings.get(changing) == new:
            self.changed(changing, new)
        incoming = Incoming(log.settings)
        if isinstance(changing, int) and (changing in incoming) == (new is not None):
            self.changed(changing, new)
        self.changing = None
        for key in KEYS:
            expect(log.settings.get(key) == self.settings.get(key), f"setting {key} is neither old nor new")
        expect(log.settings.keys() == sorted(self.settings), f"settings {log.settings.keys()}")
        for identifier in IDENTIFIERS:
            expected = identifier in self.remembered
            expect((identifier in incoming) == expected, f"received {identifier}: expected {expected}")

    def _check_gaps(self, log: Log) -> None:
        """Each range counts exactly what it covers, and together they cover all."""
        if self.telling is not None:
            if not any(gap in self.telling for gap in log.gaps()):
                self.told_of(log)
            self.telling = None
        if self.drifts:
            for message_id in (self.dropped | self.torn | self.unreadable | self.damaged) - self.told:
                expect(_is_told_at_all(log, message_id), f"no gap tells that {message_id} is gone")
            return
        for reason, gone in [(reason, ids - self.told) for reason, ids in self._gone().items()]:
            counted = set()
            for first, last, count, why in log.gaps():
                if why == "damaged":  # its acknowledgement was in RAM when the power went, and its sector was erased
                    ours = self.done | self.acknowledged.keys() | self.told
                    expect(set(range(first, last + 1)) <= ours, f"gap {first}-{last} is {why}")
                    continue
                expect(why in self._gone(), f"gap {first}-{last} is {why}")
                if why == reason:
                    inside = {message_id for message_id in gone if first <= message_id <= last}
                    expect({first, last} <= inside, f"gap {first}-{last} {why} does not end at what is gone")
                    expect(len(inside) == count, f"gap {first}-{last} {why} counts {count}, gone are {len(inside)}")
                    counted |= inside
            expect(counted == gone, f"no gap tells that {sorted(gone - counted)} are {reason}")

    def told_of(self, log: Log) -> None:
        """Gaps are forgotten: what no gap covers any more was told."""
        for reason, gone in self._gone().items():
            self.told |= {message_id for message_id in gone if not is_told(log, message_id, reason)}
        self.told |= {message_id for message_id in self.damaged if not _is_told_at_all(log, message_id)}
        self.telling = None

    def _gone(self) -> dict[str, set[int]]:
        """The ids of which gaps have to tell, by reason."""
        return {"dropped": self.dropped, "torn": self.torn, "unreadable": self.unreadable}
