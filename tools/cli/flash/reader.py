"""Reads a store from an image as a mount would, without writing. Brackets name clauses of SPEC."""

from collections import Counter
from struct import iter_unpack

from tools.cli.flash.layout import (
    VERSION,
    Free,
    Open,
    Record,
    RecordReader,
    is_blank,
    open_offset,
    parse_free,
    parse_open,
    records_offset,
    sector_seed,
)
from tools.cli.flash.replay import GAPS, Replay
from tools.cli.flash.store import DROPPED, MEMORY, REASONS, TORN, Gap, NoStore, Sector, Store

SEARCH_STEP = 256  # bytes between two places at which a store of another sector size is looked for
SEQ_END = 0x20000000
BAD_SEQ = "OPEN's sector_seq is out of range"
LOST_MAX, LOOKS_MAX = 4, 16  # the most lost sectors after the last known one; the most records tried in each
RECEIVED = "\0received"  # the key of a setting that the store uses itself


def read_store(image: bytes, sector_size: int) -> Store:
    """Returns the store in `image`. Raises NoStore."""
    if not image or len(image) % sector_size:
        raise NoStore(f"{len(image)} bytes are not whole sectors of {sector_size}")
    contents = [image[start : start + sector_size] for start in range(0, len(image), sector_size)]
    store = Store(sector_size)
    _classify(store, contents, image)
    _recover(store, contents)
    dropped: set[int] = set()
    while True:  # repeated without the sectors that a record declares invalid
        replay = Replay(store, dropped)
        used = [(sector.sector_seq, sector.number) for sector in store.sectors if sector.sector_seq]
        for seq, number in sorted(used):
            if number not in dropped:
                seed = sector_seed(store.epoch, seq)
                replay.sector(store.sectors[number], RecordReader(number, contents[number], store.granule, seed))
        if replay.dropped <= dropped:
            break
        dropped |= replay.dropped
    replay.end()
    for number in [
        *(found.sector for found in store.messages.values()),
        *(found.sector for found in store.settings.values()),
    ]:
        store.sectors[number].live += 1
    _take_own_settings(store)
    _foresee_mount(store, replay, contents)
    return store


def _classify(store: Store, contents: list[bytes], image: bytes) -> None:
    """Finds the state of each sector by its headers [R1]."""
    frees = [parse_free(content) for content in contents]
    valid = [free for free in frees if isinstance(free, Free)]
    if not valid:
        raise NoStore(_nothing_found(frees, image, store.sector_size))
    for number, free in enumerate(frees):
        if isinstance(free, Free) and free.version > VERSION:
            raise NoStore(f"sector {number} has format version {free.version}, known here: up to {VERSION}")
    (store.granule, store.epoch), _ = Counter((free.granule, free.epoch) for free in valid).most_common(1)[0]
    store.sectors = [
        _classified(store, number, free, content)
        for number, (free, content) in enumerate(zip(frees, contents, strict=True))
    ]


def _classified(store: Store, number: int, free: Free | str, content: bytes) -> Sector:
    if isinstance(free, Free) and (free.granule, free.epoch) != (store.granule, store.epoch):
        return Sector(number, "unusable", f"of the store {free.epoch:08x}, granule {free.granule}", free, None)
    found = parse_open(content, store.granule, store.epoch)
    problem = None if isinstance(free, Free) else free
    header = free if isinstance(free, Free) else None
    if isinstance(found, Open):
        if found.mended:
            problem = f"{problem}; " * bool(problem) + "one flipped bit in OPEN"
        if not 0 < found.sector_seq < SEQ_END:
            return Sector(number, "unusable", BAD_SEQ, header, None)
        return Sector(number, "used", problem, header, found, found.sector_seq)
    if header and found == "blank":
        return Sector(number, "free", None, header, None)
    return Sector(number, "unusable", problem or found, header, None)


def _recover(store: Store, contents: list[bytes]) -> None:
    """Finds sectors in use whose OPEN is unreadable: a record in them is valid with an unused sector_seq [R1]."""
    opens = [sector.open for sector in store.sectors if sector.open]
    last = max(opens, key=lambda one: one.sector_seq, default=None)
    highest = last.sector_seq if last else 0
    lowest = max(1, last.tail_seq if last else 0, highest - 2 * len(contents))
    free = [seq for seq in range(lowest, highest + LOST_MAX + 1) if seq not in {one.sector_seq for one in opens}]
    for sector in store.sectors:
        foreign = sector.free and (sector.free.granule, sector.free.epoch) != (store.granule, store.epoch)
        content = contents[sector.number]
        is_open_blank = is_blank(content[open_offset(store.granule) : records_offset(store.granule)])
        if sector.open or foreign or is_open_blank or sector.problem == BAD_SEQ:
            continue
        tried = list(RecordReader(sector.number, content, store.granule, 0).plausible())[:LOOKS_MAX]
        for seq, offset in ((seq, offset) for offset in tried for seq in free):
            reader = RecordReader(sector.number, content, store.granule, sector_seed(store.epoch, seq))
            if isinstance(reader.at(offset), Record):
                sector.sector_seq, sector.state = seq, "used"
                free.remove(seq)
                break


def _nothing_found(frees: list[Free | str], image: bytes, sector_size: int) -> str:
    found = [at for at in range(0, len(image), SEARCH_STEP) if isinstance(parse_free(image[at : at + 32]), Free)]
    if found:
        return f"no sector of {sector_size} bytes begins with a valid FREE, but bytes at {found[0]} do"
    most, count = Counter(str(free) for free in frees).most_common(1)[0]
    return f"no valid FREE in any of {len(frees)} sectors of {sector_size} bytes; {count} of them: {most}"


def _take_own_settings(store: Store) -> None:
    """Takes the settings that the store uses itself: their keys begin with a zero byte."""
    own = {key: store.settings.pop(key) for key in list(store.settings) if key.startswith("\0")}
    if GAPS in own:
        value = own[GAPS].value
        whole = value[4 : len(value) - (len(value) - 4) % 13]
        store.gaps = [
            Gap(first, last, count, REASONS.get(reason, str(reason)))
            for first, last, count, reason in iter_unpack("<IIIB", whole)
        ]
    if RECEIVED in own:
        value = own[RECEIVED].value
        store.received = [identifier for (identifier,) in iter_unpack("<H", value[: len(value) // 2 * 2])]


def _foresee_mount(store: Store, replay: Replay, contents: list[bytes]) -> None:
    """Finds what the next mount will change."""
    mount = store.next_mount
    mount.boot_id = replay.next_boot_id
    told = [(range(gap.first, gap.last + 1), gap) for gap in store.gaps if gap.count == gap.last - gap.first + 1]
    mount.damaged = [one for one in replay.missing if not any(_tells_of(gap, one) for gap in store.gaps)]
    if replay.lost_message:
        mount.leaves_out = store.last_id + 1
    dropped_up_to = max((gap.last for gap in store.gaps if gap.reason == DROPPED), default=0)
    spared = [range(dropped_up_to + 1), *(ids for ids, gap in told if gap.reason in (TORN, MEMORY))]
    mount.drops = [message_id for message_id in store.messages if any(message_id in ids for ids in spared)]
    for message_id in mount.drops:
        store.messages.pop(message_id)
    for sector in store.sectors:
        if sector.state == "free":
            sector.problem = _distrust(sector.number in replay.voided, contents[sector.number], store.granule)
            if sector.problem:
                mount.erases.append(sector.number)


def _tells_of(gap: Gap, message_id: int) -> bool:
    """Returns whether this id is not missing, as the gap counts it, or lies between dropped ones [G2]."""
    if gap.count == gap.last - gap.first + 1 or gap.reason == DROPPED:
        return gap.first <= message_id <= gap.last
    return message_id in (gap.first, gap.last)


def _distrust(is_voided: bool, content: bytes, granule: int) -> str | None:
    """Returns why a free sector will be erased again before its use [R1] [R7]; None if it will not."""
    if is_voided:
        return "its erase was cut"
    if not is_blank(content[open_offset(granule) :]):
        return "not blank"
    return None
