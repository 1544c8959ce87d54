"""Decodes the store's sector headers and records by `flash_store/SPEC.md`. Brackets name its clauses."""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import pack, unpack_from
from zlib import crc32

MAGIC = b"HF"
VERSION = 2
FREE_SIZE = 16
OPEN_SIZE = 20
HEADER_SIZE = 16
MSG, MOVE, ACK, REC, SET, STATE, ERASE = 0x4D, 0x56, 0x41, 0x72, 0x4B, 0x53, 0x65
NAMES = {MSG: "MSG", MOVE: "MOVE", ACK: "ACK", REC: "REC", SET: "SET", STATE: "STATE", ERASE: "ERASE"}
WITH_BODY = (MSG, MOVE, SET)


def pad(size: int, granule: int) -> int:
    """Returns `size`, rounded up to whole granules."""
    return -(-size // granule) * granule


def is_blank(content: bytes) -> bool:
    return not content.strip(b"\xff")


@dataclass(frozen=True)
class Free:
    """The FREE header of a sector, which is written after its erase."""

    version: int
    granule: int
    erase_count: int
    epoch: int


@dataclass(frozen=True)
class Open:
    """The OPEN header of a sector in use; `mended`: one bit of it was flipped, and is corrected here."""

    mended: bool
    sector_seq: int
    tail_seq: int
    next_id: int
    boot_id: int


@dataclass(frozen=True)
class Header:
    """The fields at the start of a record, valid or not; the kind decides what `number` and `aux` mean."""

    kind: int
    flags: int
    length: int
    number: int
    aux: int
    crc: int


@dataclass(frozen=True)
class Record:
    """One valid record; `offset` is its place in its sector."""

    header: Header
    body: bytes
    offset: int


@dataclass
class BadRecord:
    """Bytes between two valid records that are neither blank nor a valid record.

    `was_message`: they may have been a whole message before [R4]. `message_id`: the id of this message, if it can still
    be read, perhaps after one flipped bit is corrected [G2]."""

    sector: int
    offset: int
    size: int
    reason: str
    was_message: bool = False
    message_id: int | None = None


def open_offset(granule: int) -> int:
    return pad(FREE_SIZE, granule)


def records_offset(granule: int) -> int:
    return open_offset(granule) + pad(OPEN_SIZE, granule)


def parse_free(sector: bytes) -> Free | str:
    """Returns the sector's FREE header, or a text about its fault."""
    if is_blank(sector[:FREE_SIZE]):
        return "blank"
    magic, version, log2_granule, erase_count, epoch, crc = unpack_from("<2sBBIII", sector)
    if magic != MAGIC:
        return f"begins with {magic.hex(' ')}, expected {MAGIC.hex(' ')}"
    expected = crc32(sector[: FREE_SIZE - 4])
    if crc != expected:
        return f"FREE's crc is {crc:08x}, its bytes give {expected:08x}"
    if not version:
        return "FREE's version is 0"
    if not 3 <= log2_granule <= 8:
        return f"FREE's granule is 2^{log2_granule} bytes, expected 8 to 256"
    return Free(version, 1 << log2_granule, erase_count, epoch)


def parse_open(sector: bytes, granule: int, epoch: int) -> Open | str:
    """Returns the sector's OPEN header, with one flipped bit corrected [R1], or a text about its fault."""
    at = open_offset(granule)
    if is_blank(sector[at : records_offset(granule)]):
        return "blank"
    found = sector[at : at + OPEN_SIZE]
    if _open_holds(found, epoch):
        return Open(False, *unpack_from("<IIII", found))
    for other in _one_bit_off(found):
        if _open_holds(other, epoch):
            return Open(True, *unpack_from("<IIII", other))
    return f"OPEN's crc is {found[16:][::-1].hex()}, its bytes give {crc32(found[:16], epoch):08x}"


def _open_holds(found: bytes, epoch: int) -> bool:
    return found[16:] == pack("<I", crc32(found[:16], epoch))


def _one_bit_off(content: bytes) -> Iterator[bytes]:
    """Yields every content that differs from `content` in one bit."""
    number = int.from_bytes(content, "little")
    for bit in range(8 * len(content)):
        yield (number ^ 1 << bit).to_bytes(len(content), "little")


def sector_seed(epoch: int, sector_seq: int) -> int:
    """Returns the start value for the checksums of a sector's records."""
    return crc32(pack("<II", epoch, sector_seq))


class RecordReader:
    """Reads the records of one sector in use."""

    def __init__(self, number: int, content: bytes, granule: int, seed: int) -> None:
        self._number, self._content, self._granule, self._seed = number, content, granule, seed

    def scan(self) -> Iterator[Record | BadRecord]:
        """Yields the records and the bad records in order [R2]."""
        offset = records_offset(self._granule)
        bad: BadRecord | None = None
        while offset + HEADER_SIZE <= len(self._content):
            found = self.at(offset)
            if isinstance(found, Record):
                if bad:
                    yield self._judged(bad)
                    bad = None
                yield found
                offset += pad(HEADER_SIZE + len(found.body), self._granule)
                continue
            end = offset + self._granule
            if not is_blank(self._content[offset:end]):
                bad = bad or BadRecord(self._number, offset, 0, found)
                bad.size = end - bad.offset
            offset = end
        if bad:
            yield self._judged(bad)

    def plausible(self) -> Iterator[int]:
        """Yields the offsets of plausible headers, whatever their CRC; it tries each granule."""
        for offset in range(records_offset(self._granule), len(self._content) - HEADER_SIZE + 1, self._granule):
            if not is_blank(self._content[offset : offset + self._granule]) and not self._header(offset)[1]:
                yield offset

    def at(self, offset: int) -> Record | str:
        """Returns the valid record at this offset, or the reason why there is none."""
        header, problem = self._header(offset)
        if problem:
            return problem
        body = self._content[offset + HEADER_SIZE : offset + HEADER_SIZE + header.length]
        crc = crc32(body, crc32(self._content[offset : offset + HEADER_SIZE - 4], self._seed))
        if crc != header.crc:
            return f"{NAMES[header.kind]}'s crc is {header.crc:08x}, its bytes give {crc:08x}"
        return Record(header, body, offset)

    def _header(self, offset: int) -> tuple[Header, str]:
        """Returns the header at this offset, and the reason why it is not plausible, "" if it is."""
        header = Header(*unpack_from("<BBHIII", self._content, offset))
        name = NAMES.get(header.kind)
        if name is None:
            return header, f"there is no kind {header.kind:02x}"
        if offset + HEADER_SIZE + header.length > len(self._content):
            return header, f"{name} of {header.length} bytes ends outside its sector"
        if header.kind in WITH_BODY and header.aux > header.length:
            return header, f"{name} has a body of {header.length} bytes, less than its key or topic of {header.aux}"
        if header.kind not in WITH_BODY and header.length:
            return header, f"{name} has a body of {header.length} bytes"
        return header, ""

    def _judged(self, bad: BadRecord) -> BadRecord:
        header, problem = self._header(bad.offset)
        size = HEADER_SIZE + (0 if problem else header.length)
        mended = self._mended(bad.offset, size)
        if problem:
            bad.was_message = bad.size > HEADER_SIZE or mended is not None
        elif header.kind == MSG:
            is_last_programmed = bad.size >= pad(size, self._granule)  # a cut leaves the last granule blank
            bad.was_message = is_last_programmed or mended is not None
        if mended is not None or not problem:
            header = mended or header
            bad.message_id = header.number if header.kind in (MSG, MOVE) else None
        return bad

    def _mended(self, offset: int, size: int) -> Header | None:
        """Returns the header of the valid record at this offset if one flipped bit of its bytes is corrected."""
        rest = self._content[offset + size :]
        for other in _one_bit_off(self._content[offset : offset + size]):
            reader = RecordReader(self._number, self._content[:offset] + other + rest, self._granule, self._seed)
            found = reader.at(offset)
            if isinstance(found, Record):
                return found.header
        return None
