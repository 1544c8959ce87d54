"""The frames of the serial link: zero, COBS of (kind, seq, ack, credit, payload, CRC-32), zero.

kind     version << 5 | FINAL << 4 | POLL << 3 | type
credit   free room in the sender's receive buffer, in units of 64 bytes
CRC-32   of all before it, most significant byte first
"""

from binascii import crc32

from wire import cobs
from wire.errors import WireError

VERSION = 1
SABM, UA, INFO, RR, RNR, REJ, UI, DISC = range(8)
POLL, FINAL = 0x08, 0x10
HEADER_BYTES, CRC_BYTES = 4, 4
CREDIT_UNIT = 64
CREDIT_MAX = 255


class Frame:
    """One frame taken off the line."""

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
    """`kind` is a type, with POLL and FINAL where they apply; `credit` is in bytes."""
    plain = bytes((VERSION << 5 | kind, seq, ack, credit // CREDIT_UNIT)) + payload
    return b"\0" + cobs.encode(plain + crc32(plain).to_bytes(CRC_BYTES, "big")) + b"\0"


class FrameDecoder:
    """Cuts frames out of the bytes of a line and drops what noise has touched.

    Args:
        payload_max: bytes of the longest payload taken.
    """

    def __init__(self, payload_max: int) -> None:
        longest = HEADER_BYTES + payload_max + CRC_BYTES
        self._encoded_max = longest + longest // cobs.RUN_MAX + 1
        self._rest = b""  # of a frame that has not ended yet
        self._skipping = False
        self.damaged = 0
        self.damaged_bytes = 0

    def feed(self, data: bytes | bytearray | memoryview) -> list:
        """The frames that `data` completes, in order."""
        pieces = (self._rest + bytes(data)).split(b"\0")
        self._rest = pieces.pop()
        frames = [frame for frame in [self._decode(piece) for piece in pieces] if frame is not None]
        if len(self._rest) > self._encoded_max:  # no frame of ours: wait for the next zero
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
                plain = cobs.decode(encoded)
            except WireError:
                plain = b""
            body = plain[:-CRC_BYTES]
            if len(body) >= HEADER_BYTES and crc32(body).to_bytes(CRC_BYTES, "big") == plain[-CRC_BYTES:]:
                return Frame(plain)
        self.damaged += 1
        self.damaged_bytes += len(encoded)
        return None
