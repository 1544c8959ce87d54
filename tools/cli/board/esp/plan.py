"""What is written to an ESP32, and what is refused: a pure function of what the board says and what the user gave."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tools.cli.board.content import CONFIG, MARK, OWN
from tools.cli.board.errors import Refused
from tools.cli.board.esp.firmware import MICROPYTHON
from tools.cli.board.esp.layout import Layout
from tools.cli.board.esp.loader import Piece
from tools.cli.board.stores import BLANK, SECTOR_BYTES, Region

NEWER = "format version"  # of a store that only later firmware knows
FRESH = {"boot.py"}  # what MicroPython makes itself


@dataclass(frozen=True)
class Found:
    """What the board says.

    Attributes:
        has_table: whether it has a partition table that can be read.
        is_torn: whether a table that cannot be read may come from a write that was cut.
        program: the project of its program; "" if there is none.
        head: the first two sectors of the file system's place.
        names: the names in the file system's root; None if there is none that can be read.
        is_rest_blank: whether nothing is behind the head.
        regions: what was read where a store is, will be, or could be.
        same: whether the flash already has a piece, for each of `Wanted.pieces`, then for each of `Wanted.image`.
    """

    has_table: bool
    is_torn: bool
    program: str
    head: bytes
    names: Sequence[str] | None
    is_rest_blank: bool
    regions: Sequence[Region]
    same: Sequence[bool]


@dataclass(frozen=True)
class Wanted:
    """What the user gave.

    Attributes:
        pieces: MicroPython, where it is written, and the partition table.
        image: the file system's pieces, in the order in which they are written.
        own_names: the names in the root of the file system that this configuration makes.
        rescues: whether messages are sent before they are erased.
        discards: whether messages may be erased.
        replaces: whether a program that is not MicroPython, and files that are not ours, may be replaced.
    """

    layout: Layout
    pieces: Sequence[Piece]
    image: Sequence[Piece]
    own_names: Sequence[str]
    rescues: bool = False
    discards: bool = False
    replaces: bool = False


@dataclass(frozen=True)
class Plan:
    """The steps, in this order.

    Attributes:
        rescued: the stores whose messages are sent first.
        gone: the stores that may go only because all their messages are acknowledged, or rescued.
        erased: ranges of the flash that are erased.
        written: MicroPython and the partition table.
        asks: whether the board starts then with an empty file system, and is asked what it can execute.
        image: the file system.
        says: what the user should know.
    """

    rescued: Sequence[Region] = ()
    gone: Sequence[Region] = ()
    erased: Sequence[range] = ()
    written: Sequence[Piece] = ()
    asks: bool = False
    image: Sequence[Piece] = ()
    says: Sequence[str] = field(default=())


def make_plan(found: Found, wanted: Wanted) -> Plan:
    """Decides. Raises Refused, with the reasons in words, where something would be lost that no option gives up."""
    count = len(wanted.pieces)
    written = [piece for piece, same in zip(wanted.pieces, found.same[:count], strict=True) if not same]
    reasons = [] if wanted.replaces else [*_foreign_program(found), *_foreign_files(found, wanted)]
    reasons += [text for region in found.regions if (text := _lost(region, wanted))]
    if reasons:
        raise Refused("\n".join(reasons))
    going = [region for region in found.regions if not _stays(region, wanted)]
    says = [f"the store stays: {_count(region)}" for region in found.regions if region.store and region not in going]
    rescued = [region for region in going if region.unacknowledged and wanted.rescues]
    gone = [region for region in going if region.store and not wanted.discards]
    if wanted.discards:
        says += [f"{_count(region)} at {region.place}: discarded" for region in going if region.unacknowledged]
    erased = [region.area for region in going if _is_home(region, wanted)]
    image = list(wanted.image) if gone or not all(found.same[count:]) else []
    return Plan(rescued, gone, erased, written, bool(image), image, says)


def _stays(region: Region, wanted: Wanted) -> bool:
    """Whether nothing of a region is erased: it is blank, or the store that the device goes on with."""
    if region.store is None:
        return not region.fault
    return _is_home(region, wanted) and not (wanted.discards or wanted.rescues)


def _is_home(region: Region, wanted: Wanted) -> bool:
    return wanted.layout.store == region.area


def _lost(region: Region, wanted: Wanted) -> str:
    """Why a region must not go; "" if it may."""
    if _stays(region, wanted) or wanted.discards:
        return ""
    if region.store is None and (region.is_named or NEWER in region.fault) and not wanted.replaces:
        return f"a store's place at {region.place} has no store that can be read: {region.fault}. --discard gives it up"
    if not region.unacknowledged or wanted.rescues:
        return ""
    home = wanted.layout.store
    why = "the configuration has no store there"
    if home is not None:
        why = f"its new place is 0x{home.start:x}, with {len(home) // SECTOR_BYTES} sectors"
    return (
        f"the store at {region.place} holds {_count(region)}, and {why}. --rescue URL sends them first; "
        "--discard gives them up"
    )


def _count(region: Region) -> str:
    count = region.unacknowledged
    return f"{count} message{'' if count == 1 else 's'} without an acknowledgement"


def _foreign_program(found: Found) -> list[str]:
    if not found.has_table and not found.is_torn:
        return [
            "the board has something else at 0x8000, where an ESP32's partition table is; perhaps its flash is "
            "encrypted. --replace writes over it"
        ]
    if found.program not in ("", MICROPYTHON):
        return [
            f"the board has another program, {found.program!r}, with a partition table of its own. --replace writes "
            "over them"
        ]
    return []


def _foreign_files(found: Found, wanted: Wanted) -> list[str]:
    if not found.head[:SECTOR_BYTES].strip(BLANK) or (found.names is None and found.is_rest_blank):
        return []  # MicroPython makes a new file system there, or has begun one
    place = f"the file system at 0x{wanted.layout.files.start:x}"
    if found.names is None:
        return [] if not found.has_table else [f"{place} cannot be read. --replace makes a new one"]
    if MARK in found.names:
        return []
    own = {*OWN, *wanted.own_names} if CONFIG in found.names else FRESH
    foreign = sorted(set(found.names) - own)
    if not foreign:
        return []
    return [f"{place} has files that are not Holdfast's: {', '.join(foreign)}. --replace makes a new one"]
