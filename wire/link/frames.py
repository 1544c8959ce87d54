"""The frames of the serial link: zero, COBS of (kind, seq, ack, credit, payload, CRC-32), zero.

kind     version << 5 | FINAL << 4 | POLL << 3 | type
credit   free room in the sender's receive buffer, in units of 64 bytes
CRC-32   of all bytes before it, most significant byte first
"""

from binascii import crc32

from wire.errors import WireError

VERSION = 1
SABM, UA, INFO, RR, RNR, REJ, UI, DISC = range(8)
POLL, FINAL = 0x08, 0x10
HEADER_BYTES, CRC_BYTES = 4, 4
CREDIT_UNIT = 64
CREDIT_MAX = 255
RUN_MAX = 254  # bytes without a zero in one block of COBS, at most


class Frame:
    """One frame that was received."""

    def __init__(self, plain: bytes) -> None:
        self.version = plain[0] >> 5
        self.final = plain[0] & FINAL != 0
        self.poll = plain[0] & POLL != 0
        self.type = plain[0] & 7
        self.seq = plain[1]
        self.ack = plain[2]
        self.credit = plain[3] * CREDIT_UNIT
        self.payload = plain[HEADER_BYTES:-CRC_BYTES]


def encode_frame(kind: int, seq: int, ack: int, credit: int, payload: bytes = b"") -> bytes:
    """Encodes a frame; `kind` is a type, or'ed with POLL or FINAL; `credit` is in bytes."""
    plain = bytes((VERSION << 5 | kind, seq, ack, credit // CREDIT_UNIT)) + payload
    return b"\0" + stuff(plain + crc32(plain).to_bytes(CRC_BYTES, "big")) + b"\0"


class FrameDecoder:
    """Finds the frames in the received bytes, and drops damaged ones.

    Args:
        payload_max: bytes of the longest payload that is accepted.
    """

    def __init__(self, payload_max: int) -> None:
        longest = HEADER_BYTES + payload_max + CRC_BYTES
        self._encoded_max = longest + longest // RUN_MAX + 1
        self._rest = b""  # the beginning of a frame that is not complete yet
        self._skipping = False
        self.damaged_bytes = 0

    def feed(self, data: bytes | bytearray | memoryview) -> list:
        """Returns the frames that `data` completes, in order."""
        pieces = (self._rest + bytes(data)).split(b"\0")
        self._rest = pieces.pop()
        frames = [frame for frame in [self._decode(piece) for piece in pieces] if frame is not None]
        if len(self._rest) > self._encoded_max:  # too long for a frame: skip up to the next zero
            self._skipping = True
            self.damaged_bytes += len(self._rest)
            self._rest = b""
        return frames

    def _decode(self, encoded: bytes) -> Frame | None:
        skipped, self._skipping = self._skipping, False
        if not encoded and not skipped:
            return None
        if not skipped and len(encoded) <= self._encoded_max:
            try:
                plain = unstuff(encoded)
            except WireError:
                plain = b""
            body = plain[:-CRC_BYTES]
            if len(body) >= HEADER_BYTES and crc32(body).to_bytes(CRC_BYTES, "big") == plain[-CRC_BYTES:]:
                return Frame(plain)
        self.damaged_bytes += len(encoded)
        return None


def stuff(plain: bytes) -> bytes:
    """Encodes bytes with COBS: without zeros, longer by one byte, and by one more for each 254 bytes without a zero."""
    encoded = bytearray()
    for run in plain.split(b"\0"):
        while len(run) >= RUN_MAX:
            encoded.append(0xFF)
            encoded += run[:RUN_MAX]
            run = run[RUN_MAX:]
        encoded.append(len(run) + 1)
        encoded += run
    return bytes(encoded)


def unstuff(encoded: bytes) -> bytes:
    """Decodes the bytes that `stuff` has made. Raises WireError for any others."""
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
