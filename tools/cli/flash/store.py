"""The content of a store in an image, as `tools.cli.flash.reader` finds it."""

from dataclasses import dataclass, field

from tools.cli.flash.layout import BadRecord, Free, Open

DROPPED, UNREADABLE, TORN, FORSAKEN = "dropped", "unreadable", "torn", "forsaken"
REJECTED, MEMORY, DAMAGED = "rejected", "memory", "damaged"
REASONS = {1: DROPPED, 2: UNREADABLE, 3: TORN, 4: FORSAKEN, 5: REJECTED, 6: MEMORY, 7: DAMAGED}


class NoStore(Exception):
    """The image has no store that this reader knows; the text says what was found and where."""


@dataclass
class Message:
    """One unacknowledged message; `offset` is the place of its record in the image."""

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
    """A named value; `offset` is the place of its record in the image."""

    value: bytes
    sector: int
    offset: int


@dataclass(frozen=True)
class Gap:
    """A range of messages that were lost without an acknowledgement: `count` of the ids `first` to `last`."""

    first: int
    last: int
    count: int
    reason: str


@dataclass
class Sector:
    """One sector. `state` is free, used, dropped (its records are invalid) or unusable. `problem` says why it will be
    erased before its next use, or what was corrected. `sector_seq` is the place in the log of a sector in use, also if
    its OPEN is unreadable."""

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
    """What the next mount will do: its boot id; `damaged`: ids without a record, which get a gap [G2]; `leaves_out`:
    the id that it skips [R4]; `drops`: messages of a gap whose records a power cut has kept [G1]; `erases`: free
    sectors that it erases before their use."""

    boot_id: int = 1
    damaged: list[int] = field(default_factory=list)
    leaves_out: int | None = None
    drops: list[int] = field(default_factory=list)
    erases: list[int] = field(default_factory=list)


@dataclass
class Store:
    """The content of a store."""

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
        """The erase counts of the sectors with a readable header."""
        return [sector.free.erase_count for sector in self.sectors if sector.free]
