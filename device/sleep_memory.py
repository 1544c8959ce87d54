"""What a device knows through a deep sleep, in bytes for memory that keeps its power: `machine.RTC().memory`, say.

    HEAD, the DeadBand's bytes, CRC-32

A power cut leaves nothing of it, or something that the CRC finds: then the device begins a new boot.
"""

import binascii
import struct

MAGIC = 0x4846_5301  # whose last byte is the version
HEAD = "<IIqB3qHB"
NO_ANCHOR = (0, 0, 0)


class Slept:
    """What was kept: `boot_id`, `uptime_ms` after the sleep, the clock's `anchor` or None, `samples` and `failures` of
    Duty, and the `bands` of DeadBand."""

    def __init__(self, boot_id: int, uptime_ms: int, anchor, samples: int, failures: int, bands: bytes) -> None:
        self.boot_id = boot_id
        self.uptime_ms = uptime_ms
        self.anchor = anchor
        self.samples = samples
        self.failures = failures
        self.bands = bands


def encode(slept: Slept) -> bytes:
    """At most 2048 bytes, which is what an ESP32 keeps."""
    anchor = slept.anchor or NO_ANCHOR
    moment = (slept.boot_id, slept.uptime_ms, slept.anchor is not None)
    kept = struct.pack(HEAD, MAGIC, *moment, *anchor, min(slept.samples, 0xFFFF), slept.failures) + slept.bands
    return kept + struct.pack("<I", binascii.crc32(kept))


def decode(content: bytes) -> Slept | None:
    """None where there is nothing sound."""
    size = struct.calcsize(HEAD)
    if len(content) < size + 4 or struct.unpack("<I", content[-4:])[0] != binascii.crc32(content[:-4]):
        return None
    magic, boot_id, uptime_ms, has_anchor, *others = struct.unpack(HEAD, content[:size])
    if magic != MAGIC:
        return None
    anchor = tuple(others[:3]) if has_anchor else None
    return Slept(boot_id, uptime_ms, anchor, others[3], others[4], bytes(content[size:-4]))
