"""Consistent Overhead Byte Stuffing (Cheshire and Baker, 1999): bytes without a zero, so that a zero can part them."""

from wire.errors import WireError

RUN_MAX = 254  # the most bytes without a zero that one block holds


def encode(plain: bytes) -> bytes:
    """`plain` without zeros; longer by one byte, and by one more for each full run of 254 bytes without a zero."""
    encoded = bytearray()
    for run in plain.split(b"\0"):
        while len(run) >= RUN_MAX:
            encoded.append(0xFF)
            encoded += run[:RUN_MAX]
            run = run[RUN_MAX:]
        encoded.append(len(run) + 1)
        encoded += run
    return bytes(encoded)


def decode(encoded: bytes) -> bytes:
    """Raises WireError for what `encode` cannot have made."""
    plain = bytearray()
    position = 0
    end = len(encoded)
    while position < end:
        code = encoded[position]
        following = position + code
        if code == 0 or following > end:
            raise WireError(f"COBS: code {code} at byte {position} of {end}")
        plain += encoded[position + 1 : following]
        if code <= RUN_MAX and following < end:
            plain.append(0)
        position = following
    return bytes(plain)
