"""Records: a header of 16 bytes, then the body, padded to whole granules (SPEC.md, "Records")."""

import struct
from binascii import crc32

# An even number of ones each, so that one flipped bit does not make one kind another.
MSG = 0x4D  # "M"
ACK = 0x41  # "A"
REC = 0x72  # "r"
MOVE = 0x56  # "V"
SET = 0x4B  # "K"
STATE = 0x53  # "S"
ERASE = 0x65  # "e"

HEADER_SIZE = 16
ACK_SPAN = 32  # ids that one ACK or REC record covers
RETAIN = 0x04  # flags of a message: bits 0-1 QoS, bit 2 retain, bit 3 PUBREC received
RECEIVED = 0x08
REMOVED = 0x01  # flag of a setting
_HEADER = "<BBHIII"
_CRC_OFFSET = 12
_POLYNOMIAL = 0xEDB88320  # CRC-32's, as it is used from the lowest bit up


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
        """True when a record may begin like this and end within `room` bytes."""
        if self.has_body():
            return self.aux <= self.length <= room - HEADER_SIZE
        return self.kind in (ACK, REC, STATE, ERASE) and self.length == 0


def extent(length: int, granule: int) -> int:
    """Bytes on flash of a record with a body of `length` bytes."""
    return (HEADER_SIZE + length + granule - 1) // granule * granule


def seed(epoch: int, sector_seq: int) -> int:
    """What a sector's checksums start from: a record of another store or another life of the sector never validates."""
    return crc32(struct.pack("<II", epoch, sector_seq))


def encode(kind: int, flags: int, number: int, aux: int, body: tuple, crc_seed: int, granule: int) -> bytearray:
    """A record as it is programmed, padded with 0xFF; the parts of its body are copied once, as they may be long."""
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
    """The header these bytes begin with, valid or not."""
    return Header(*struct.unpack_from(_HEADER, found))


def size_at(flash, sector: int, offset: int, granule: int) -> int:
    """Bytes on flash of the message or setting at this place; 0 where its header cannot be believed any more."""
    header = decode_header(flash.read(sector, offset, HEADER_SIZE))
    is_believable = header.has_body() and header.is_plausible(flash.sector_size - offset)
    return extent(header.length, granule) if is_believable else 0


def is_valid(flash, sector: int, offset: int, found: bytes | bytearray, crc_seed: int) -> bool:
    """True when the header in `found`, read at this place, and its body are what was programmed."""
    header = decode_header(found)
    if not header.is_plausible(flash.sector_size - offset):
        return False
    crc = crc32(found[:_CRC_OFFSET], crc_seed)
    for piece in flash.windows(sector, offset + HEADER_SIZE, header.length):
        crc = crc32(piece, crc)
    return crc == header.crc


def read_body(flash, sector: int, offset: int, crc_seed: int):
    """(header, name, content) of the message or setting at this place, None when it is not valid any more."""
    found = flash.read(sector, offset, HEADER_SIZE)
    header = decode_header(found)
    if not header.has_body() or not is_valid(flash, sector, offset, found, crc_seed):
        return None
    offset += HEADER_SIZE
    name = bytes(flash.read(sector, offset, header.aux))
    return header, name, flash.read(sector, offset + header.aux, header.length - header.aux)


def scan(flash, sector: int, first: int, crc_seed: int, granule: int):
    """Every record of a sector and every granule that is neither part of one nor blank, in order:
    yields (offset, header, valid). The whole sector is looked at, so that one bad record hides no other."""
    offset = first
    blank = b"\xff" * granule
    while offset + HEADER_SIZE <= flash.sector_size:
        found = flash.read(sector, offset, max(granule, HEADER_SIZE))
        if found[:granule] == blank:
            offset += granule
            continue
        header = decode_header(found)
        valid = is_valid(flash, sector, offset, found, crc_seed)
        yield offset, header, valid
        offset += extent(header.length, granule) if valid else granule


def is_one_bit_off(flash, sector: int, offset: int, crc_seed: int) -> bool:
    """True when the record here is valid but for one flipped bit: it was programmed whole once."""
    found = flash.read(sector, offset, HEADER_SIZE)
    for bit in range(8 * HEADER_SIZE):
        found[bit >> 3] ^= 1 << (bit & 7)
        if is_valid(flash, sector, offset, found, crc_seed):
            return True
        found[bit >> 3] ^= 1 << (bit & 7)
    header = decode_header(found)
    if not header.is_plausible(flash.sector_size - offset):
        return False
    crc = crc32(found[:_CRC_OFFSET], crc_seed)
    for piece in flash.windows(sector, offset + HEADER_SIZE, header.length):
        crc = crc32(piece, crc)
    return _is_trace_of_a_bit(crc ^ header.crc, 8 * header.length)


def _is_trace_of_a_bit(difference: int, bits: int) -> bool:
    """True when one flipped bit among the last `bits` makes this difference between two CRC-32s (CRCs are linear)."""
    trace = _POLYNOMIAL
    for _ in range(bits):
        if trace == difference:
            return True
        trace = trace >> 1 ^ (_POLYNOMIAL if trace & 1 else 0)
    return False
