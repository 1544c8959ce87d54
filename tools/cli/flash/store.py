"""What an image says: the findings of `tools.flash.reader`."""

from dataclasses import dataclass, field

from tools.flash.layout import BadRecord, Free, Open

DROPPED, UNREADABLE, TORN, FORSAKEN = "dropped", "unreadable", "torn", "forsaken"
REJECTED, MEMORY, DAMAGED = "rejected", "memory", "damaged"
REASONS = {1: DROPPED, 2: UNREADABLE, 3: TORN, 4: FORSAKEN, 5: REJECTED, 6: MEMORY, 7: DAMAGED}


class NoStore(Exception):
    """The image holds no store that this reader knows; the text says what was found and where."""


@dataclass
class Message:
    """One message that was not acknowledged; `offset` is its record's place in the image."""

    id: int
    qos: int
    retain: bool
    pubrec: bool
    topic: str
    payload: bytes
    moved: bool
    sector: int
    offset: int


@dataclass(frozen=True)
class Setting:
    """A named value; `offset` is its record's place in the image."""

    value: bytes
    sector: int
    offset: int


@dataclass(frozen=True)
class Gap:
    """A range of messages that are gone without an acknowledgement: `count` of the ids `first` to `last`."""

    first: int
    last: int
    count: int
    reason: str


@dataclass
class Sector:
    """What one sector is: `state` is free, used, dropped (nothing in it counts any more) or unusable; `problem` says
    why it is erased before its next use, or what was set right; `sector_seq` is its place in the log where it is in
    use, also without an OPEN that can be read."""

    number: int
    state: str
    problem: str | None
    free: Free | None
    open: Open | None
    sector_seq: int | None = None
    records: int = 0
    live: int = 0


@dataclass
class NextMount:
    """What the next mount does by itself: the boot it is, the ids of which nothing tells, so that a gap has to [G2],
    the id it leaves out [R4], the messages of which only a cut spared the records [G1], the free sectors it erases
    before their use."""

    boot_id: int = 1
    damaged: list[int] = field(default_factory=list)
    leaves_out: int | None = None
    drops: list[int] = field(default_factory=list)
    erases: list[int] = field(default_factory=list)


@dataclass
class Store:
    """All that the image says."""

    sector_size: int
    granule: int = 0
    epoch: int = 0
    boot_id: int = 0
    last_id: int = 0
    sectors: list[Sector] = field(default_factory=list)
    messages: dict[int, Message] = field(default_factory=dict)
    settings: dict[str, Setting] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    acknowledged: set[int] = field(default_factory=set)
    bad_records: list[BadRecord] = field(default_factory=list)
    next_mount: NextMount = field(default_factory=NextMount)

    @property
    def erase_counts(self) -> list[int]:
        """Of the sectors that tell."""
        return [sector.free.erase_count for sector in self.sectors if sector.free]
