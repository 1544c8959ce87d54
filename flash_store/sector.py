"""Sector headers: FREE is written right after the erase, OPEN on first use (SPEC.md, "Sectors")."""

import struct
from binascii import crc32

MAGIC = 0x4648  # "HF" on flash
VERSION = 2
FREE_SIZE = 16  # in all later versions too
OPEN_SIZE = 20
_FREE = "<HBBII"
_OPEN = "<IIII"


class Free:
    """The FREE header: `granule` in bytes, `epoch` of the store to which the sector belongs."""

    def __init__(self, version: int, granule: int, erase_count: int, epoch: int) -> None:
        self.version = version
        self.granule = granule
        self.erase_count = erase_count
        self.epoch = epoch


class Open:
    """The OPEN header: the sector's place in the log, and the state of the log when the sector came into use."""

    def __init__(self, sector_seq: int, tail_seq: int, next_id: int, boot_id: int) -> None:
        self.sector_seq = sector_seq
        self.tail_seq = tail_seq
        self.next_id = next_id
        self.boot_id = boot_id


def padded(size: int, granule: int) -> int:
    return (size + granule - 1) // granule * granule


def open_offset(granule: int) -> int:
    """Returns the offset of the OPEN header."""
    return padded(FREE_SIZE, granule)


def records_offset(granule: int) -> int:
    """Returns the offset of a sector's first record."""
    return open_offset(granule) + padded(OPEN_SIZE, granule)


def encode_free(granule: int, erase_count: int, epoch: int) -> bytes:
    granule_bits = 0
    while 1 << granule_bits < granule:
        granule_bits += 1
    fields = struct.pack(_FREE, MAGIC, VERSION, granule_bits, erase_count, epoch)
    return _sealed(fields, 0, open_offset(granule))


def encode_open(header: Open, epoch: int, granule: int) -> bytes:
    fields = struct.pack(_OPEN, header.sector_seq, header.tail_seq, header.next_id, header.boot_id)
    return _sealed(fields, epoch, padded(OPEN_SIZE, granule))


def read_free(flash, sector: int) -> Free | None:
    """Reads the FREE header; None if it is not valid: such a sector must be erased again, even if it looks blank.

    If the header's version is above VERSION, only its attribute `version` is meaningful.
    """
    found = flash.read_if_whole(sector, 0, FREE_SIZE)
    if found is None:
        return None
    magic, version, granule_bits, erase_count, epoch = struct.unpack_from(_FREE, found)
    if magic != MAGIC or not version or not _holds(found, 0) or not 3 <= granule_bits <= 8:
        return None
    return Free(version, 1 << granule_bits, erase_count, epoch)


def read_open(flash, sector: int, granule: int, epoch: int):
    """Returns (the OPEN header, or None if it is not valid; whether its place is blank)."""
    found = flash.read_if_whole(sector, open_offset(granule), padded(OPEN_SIZE, granule))
    if found is None:
        return None, False
    if found == b"\xff" * len(found):
        return None, True
    found = found[:OPEN_SIZE]
    if not _holds(found, epoch) and not _mend(found, epoch):
        return None, False
    return Open(*struct.unpack_from(_OPEN, found)), False


def _sealed(fields: bytes, crc_seed: int, size: int) -> bytes:
    sealed = fields + struct.pack("<I", crc32(fields, crc_seed))
    return sealed + b"\xff" * (size - len(sealed))


def _holds(found: bytearray, crc_seed: int) -> bool:
    return crc32(found[:-4], crc_seed) == struct.unpack("<I", found[-4:])[0]


def _mend(found: bytearray, crc_seed: int) -> bool:
    """Corrects one flipped bit; returns False if more than one bit is wrong."""
    for bit in range(8 * len(found)):
        found[bit >> 3] ^= 1 << (bit & 7)
        if _holds(found, crc_seed):
            return True
        found[bit >> 3] ^= 1 << (bit & 7)
    return False
