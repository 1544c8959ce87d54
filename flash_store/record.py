"""Records: a header of 16 bytes, then the body, padded to whole granules (SPEC.md, "Records")."""

import struct
from binascii import crc32

from flash_store.errors import DeviceFailed

# Each has an even number of one bits, so that a single flipped bit does not turn one kind into another.
MSG = 0x4D  # "M"
ACK = 0x41  # "A"
REC = 0x72  # "r"
MOVE = 0x56  # "V"
SET = 0x4B  # "K"
STATE = 0x53  # "S"
ERASE = 0x65  # "e"

HEADER_SIZE = 16
READS = 3  # times that a record is read before it counts as corrupt: a bus may return a wrong bit once
ACK_SPAN = 32  # ids that one ACK or REC record covers
RETAIN = 0x04  # flags of a message: bits 0-1 QoS, bit 2 retain, bit 3 PUBREC received
RECEIVED = 0x08
REMOVED = 0x01  # flag of a setting
_HEADER = "<BBHIII"
_CRC_OFFSET = 12
_POLYNOMIAL = 0xEDB88320  # of CRC-32, in reversed bit order


class Header:
    """The fixed fields of a record; `number` and `aux` mean what SPEC.md says for each kind."""

    def __init__(self, kind: int, flags: int, length: int, number: int, aux: int, crc: int) -> None:
        self.kind = kind
        self.flags = flags
        self.length = length
        self.number = number
        self.aux = aux
        self.crc = crc

    def is_message(self) -> bool:
        return self.kind in (MSG, MOVE)

    def has_body(self) -> bool:
        return self.kind in (MSG, MOVE, SET)

    def is_plausible(self, room: int) -> bool:
        """Returns whether a record can have these fields and end within `room` bytes."""
        if self.has_body():
            return self.aux <= self.length <= room - HEADER_SIZE
        return self.kind in (ACK, REC, STATE, ERASE) and self.length == 0


NONE = Header(0, 0, 0, 0, 0, 0)  # stands for a header that cannot be read


def extent(length: int, granule: int) -> int:
    """Returns the bytes on flash of a record with a body of `length` bytes."""
    return (HEADER_SIZE + length + granule - 1) // granule * granule


def seed(epoch: int, sector_seq: int) -> int:
    """Returns the initial value of a sector's CRCs.

    It differs for each store and each use of the sector, so that an old record is never taken for a valid one.
    """
    return crc32(struct.pack("<II", epoch, sector_seq))


def encode(kind: int, flags: int, number: int, aux: int, body: tuple, crc_seed: int, granule: int) -> bytearray:
    """Encodes a record for programming, padded with 0xFF. The parts of the body, which may be long, are copied once."""
    length = sum([len(part) for part in body])
    record = bytearray(extent(length, granule))
    struct.pack_into("<BBHII", record, 0, kind, flags, length, number, aux)
    crc = crc32(record[:_CRC_OFFSET], crc_seed)
    end = HEADER_SIZE
    for part in body:
        crc = crc32(part, crc)
        record[end : end + len(part)] = part
        end += len(part)
    struct.pack_into("<I", record, _CRC_OFFSET, crc)
    record[end:] = b"\xff" * (len(record) - end)
    return record


def decode_header(found: bytes | bytearray) -> Header:
    """Decodes the header at the start of these bytes, whether it is valid or not."""
    return Header(*struct.unpack_from(_HEADER, found))


def size_at(flash, sector: int, offset: int, granule: int) -> int:
    """Returns the bytes on flash of the message or setting at this place; 0 if its header is corrupt."""
    found = flash.read_if_whole(sector, offset, HEADER_SIZE)
    header = decode_header(found) if found else NONE
    is_believable = header.has_body() and header.is_plausible(flash.sector_size - offset)
    return extent(header.length, granule) if is_believable else 0


def is_valid(flash, sector: int, offset: int, found: bytes | bytearray, crc_seed: int) -> bool:
    """Checks the CRC of a record: of the header in `found`, read at this place, and of the body on flash."""
    header = decode_header(found)
    if not header.is_plausible(flash.sector_size - offset):
        return False
    crc = crc32(found[:_CRC_OFFSET], crc_seed)
    try:
        for piece in flash.windows(sector, offset + HEADER_SIZE, header.length):
            crc = crc32(piece, crc)
    except DeviceFailed:
        return False
    return crc == header.crc


def read_body(flash, sector: int, offset: int, crc_seed: int):
    """Returns (header, name, content) of the message or setting at this place; None if its record is corrupt.

    The CRC is checked over the very bytes that are returned: another read may be wrong where this one was right [C1].
    """
    for _ in range(READS):
        found = flash.read_if_whole(sector, offset, HEADER_SIZE)
        header = decode_header(found) if found else NONE
        if not header.has_body() or not header.is_plausible(flash.sector_size - offset):
            continue
        start = offset + HEADER_SIZE
        name = flash.read_if_whole(sector, start, header.aux)
        content = flash.read_if_whole(sector, start + header.aux, header.length - header.aux)
        if name is None or content is None:
            continue
        if crc32(content, crc32(name, crc32(found[:_CRC_OFFSET], crc_seed))) == header.crc:
            return header, bytes(name), content
    return None


def scan(flash, sector: int, first: int, crc_seed: int, granule: int, end: int = 0):
    """Yields (offset, header, valid) for each record of a sector, up to `end` or the sector's end, in order.

    It also yields, as not valid, each granule that is neither blank nor part of a valid record. It then goes
    on with the next granule, so that a corrupt record hides no other one. A granule that cannot be read is not valid.
    """
    offset = first
    blank = b"\xff" * granule
    while offset + HEADER_SIZE <= (end or flash.sector_size):
        for _ in range(READS):
            found = flash.read_if_whole(sector, offset, max(granule, HEADER_SIZE))
            is_blank = (found[:granule] if found else flash.read_if_whole(sector, offset, granule)) == blank
            valid = not is_blank and found is not None and is_valid(flash, sector, offset, found, crc_seed)
            if is_blank or valid:
                break
        if is_blank:
            offset += granule
            continue
        header = decode_header(found) if found else NONE
        yield offset, header, valid
        offset += extent(header.length, granule) if valid else granule


def headers(flash, sector: int, offset: int, end: int, granule: int):
    """Yields (offset, header) for each message from `offset` on, without checking the CRCs.

    This is faster than `scan`, but a corrupt length may hide messages.
    """
    while offset + HEADER_SIZE <= end:
        found = flash.read_if_whole(sector, offset, HEADER_SIZE)
        header = decode_header(found) if found else NONE
        is_plausible = header.is_plausible(flash.sector_size - offset)
        if is_plausible and header.is_message():
            yield offset, header
        offset += extent(header.length, granule) if is_plausible else granule


def mended(flash, sector: int, offset: int, crc_seed: int) -> Header | None:
    """Returns the header of a record with one flipped bit at most, set right; None if more than one bit is wrong.

    Such a record was programmed completely. The flipped bit may be in the length: so every length that differs in one
    bit is tried, in a single pass over the flash.
    """
    found = flash.read_if_whole(sector, offset, HEADER_SIZE)
    if found is None:
        return None
    said = decode_header(found).length
    lengths = [said] + [said ^ 1 << bit for bit in range(16)]  # the length as it is, and with each of its bits flipped
    crcs = _crcs(flash, sector, offset, found, crc_seed, lengths)
    for length, crc in crcs:
        difference = crc ^ decode_header(found).crc
        if length == said and not difference:  # it was corrupt in an earlier read only
            return decode_header(found)
        fields = bytearray(found)
        struct.pack_into("<H", fields, 2, length)
        if length == said:
            bit = _flipped_bit(difference, 8 * (_CRC_OFFSET + length))
            if bit is None:
                continue
            if bit < 8 * _CRC_OFFSET:
                fields[bit >> 3] ^= 1 << (bit & 7)
        elif difference:
            continue
        header = decode_header(fields)
        if header.length == length and header.is_plausible(flash.sector_size - offset):
            return header
    return None


def _crcs(flash, sector: int, offset: int, found: bytearray, crc_seed: int, lengths: list) -> list:
    """Returns [length, CRC] for each of these body lengths that can be read here."""
    room = flash.sector_size - offset - HEADER_SIZE
    crcs = []
    for length in lengths:
        fields = found[:_CRC_OFFSET]
        struct.pack_into("<H", fields, 2, length)
        if length <= room:
            crcs.append([length, crc32(fields, crc_seed)])
    at = 0
    try:
        for piece in flash.windows(sector, offset + HEADER_SIZE, max([length for length, _ in crcs] + [0])):
            for one in crcs:
                if one[0] > at:
                    one[1] = crc32(piece[: one[0] - at], one[1])
            at += len(piece)
    except DeviceFailed:
        pass
    return [one for one in crcs if one[0] <= at]


def _flipped_bit(difference: int, bits: int) -> int | None:
    """Returns which bit, when flipped, makes this difference between two CRC-32s (CRCs are linear).

    The bit is one of `bits` bits of content, or (returned as `bits`) of the CRC itself. None if no single bit does.
    """
    if difference and not difference & (difference - 1):
        return bits
    trace = _POLYNOMIAL
    for bit in range(bits - 1, -1, -1):
        if trace == difference:
            return bit
        trace = trace >> 1 ^ (_POLYNOMIAL if trace & 1 else 0)
    return None
