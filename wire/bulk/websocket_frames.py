"""WebSocket frames, and a parser of them that passes on each part of a frame when it comes [RFC 6455]."""

from collections.abc import Iterator
from enum import IntEnum
from struct import pack

FINAL, RESERVED_BITS, OPCODE = 0x80, 0x70, 0x0F  # in the first byte of a frame
MASKED, LENGTH = 0x80, 0x7F  # in the second byte
LENGTH_SIZES = {126: 2, 127: 8}  # bytes, where the length does not fit 7 bits
LENGTH_MAX = (1 << 63) - 1  # bytes [RFC 6455 section 5.2]
MASK_SIZE = 4  # bytes
CONTROL_FROM = 8  # opcodes from this one on are of control frames
CONTROL_SIZE_MAX = 125  # bytes [RFC 6455 section 5.5]


class CloseCode(IntEnum):
    """The reasons with which we close [RFC 6455 section 7.4.1]; aiohttp has them too, and takes 13 MB of memory."""

    OK = 1000
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    POLICY_VIOLATION = 1008


class FrameKind(IntEnum):
    """The opcodes of frames [RFC 6455 section 5.2]."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class FrameError(Exception):
    """The other end breaks the protocol; the text is for the log.

    Args:
        code: of our Close frame.
        text: what is wrong.
    """

    def __init__(self, code: CloseCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Frames:
    """The frames of one end. Besides data that was not asked for yet it holds less than one control frame.

    Args:
        from_client: whether they come from a client, which masks them, or from a server.
    """

    def __init__(self, *, from_client: bool = True) -> None:
        self._mask_size = MASK_SIZE if from_client else 0
        self._data = b""
        self._at = 0  # in it: all before was passed on
        self._mask = b""  # of the current data frame, rotated to its next byte
        self._rest = 0  # bytes of its payload that were not passed on
        self._is_within_message = False  # a fragment came that was not the last one

    def read(self, data: bytes) -> Iterator[tuple[FrameKind, bytes]]:
        """Yields the payload of each control frame, and the parts of binary frames that have come.

        A frame is parsed when it is asked for; the rest stays for the next call. Raises FrameError.
        """
        data = self._data[self._at :] + data
        self._data, self._at = data, 0
        while self._at < len(data):
            if self._rest:
                yield FrameKind.BINARY, self._take_payload()
                continue
            at = self._at
            begin = at + self._header_size(data, at)
            if begin > len(data):
                break
            opcode, length = data[at] & OPCODE, _length(data, at, begin - self._mask_size)
            mask = data[begin - self._mask_size : begin]
            if opcode < CONTROL_FROM:
                self._at, self._rest, self._mask = begin, length, mask
                self._is_within_message = not data[at] & FINAL
                if not length:
                    yield FrameKind.BINARY, b""
            elif begin + length <= len(data):
                self._at = begin + length
                yield FrameKind(opcode), _apply_mask(data[begin : self._at], mask)
            else:
                break
        self._data, self._at = data[self._at :], 0

    def _take_payload(self) -> bytes:
        payload, mask = self._data[self._at : self._at + self._rest], self._mask
        self._at += len(payload)
        self._rest -= len(payload)
        turn = len(payload) % MASK_SIZE
        self._mask = mask[turn:] + mask[:turn]
        return _apply_mask(payload, mask)

    def _header_size(self, data: bytes, at: int) -> int:
        """Returns the size of a frame's header, or its minimum while that is not known. Raises FrameError."""
        opcode, is_final = data[at] & OPCODE, data[at] & FINAL
        if data[at] & RESERVED_BITS:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "a frame with a reserved bit")
        if opcode >= CONTROL_FROM:
            if opcode not in (FrameKind.CLOSE, FrameKind.PING, FrameKind.PONG) or not is_final:
                raise FrameError(CloseCode.PROTOCOL_ERROR, f"a control frame {opcode} that is reserved or a fragment")
        elif opcode not in (FrameKind.CONTINUATION, FrameKind.TEXT, FrameKind.BINARY):
            raise FrameError(CloseCode.PROTOCOL_ERROR, f"a frame {opcode} that is reserved")
        elif self._is_within_message != (opcode == FrameKind.CONTINUATION):
            raise FrameError(CloseCode.PROTOCOL_ERROR, "a fragment out of place")
        elif opcode == FrameKind.TEXT:  # [MQTT-6.0.0-1]
            raise FrameError(CloseCode.UNSUPPORTED_DATA, "a frame of text")
        if at + 1 == len(data):
            return 2 + self._mask_size
        length = data[at + 1] & LENGTH
        if bool(data[at + 1] & MASKED) != bool(self._mask_size):  # [RFC 6455 section 5.1]
            raise FrameError(CloseCode.PROTOCOL_ERROR, f"a frame {'without' if self._mask_size else 'with'} a mask")
        if opcode >= CONTROL_FROM and length > CONTROL_SIZE_MAX:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "a control frame that is too long")
        return 2 + LENGTH_SIZES.get(length, 0) + self._mask_size


def encode_frame(kind: FrameKind, payload: bytes, mask: bytes) -> bytes:
    """Returns a client's frame with a whole message, or a control frame."""
    size = len(payload)
    if size <= CONTROL_SIZE_MAX:
        length = bytes((MASKED | size,))
    else:
        length = pack(">BH", MASKED | 126, size) if size < 1 << 16 else pack(">BQ", MASKED | 127, size)
    return bytes((FINAL | kind,)) + length + mask + _apply_mask(payload, mask)


def _length(data: bytes, at: int, end: int) -> int:
    length = data[at + 1] & LENGTH
    if length in LENGTH_SIZES:
        length = int.from_bytes(data[at + 2 : end], "big")
    if length > LENGTH_MAX:
        raise FrameError(CloseCode.PROTOCOL_ERROR, "a frame whose length has its highest bit set")
    return length


def _apply_mask(payload: bytes, mask: bytes) -> bytes:
    """Masks a payload, or removes its mask."""
    if not mask:
        return payload
    size = len(payload)
    key = (mask * (size // MASK_SIZE + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")
