"""Frames around a PDU: RTU and ASCII on a serial line, and the header of Modbus over TCP.

An answer is found by what is known of it: the unit, the function code and the size. A length that the frame itself
tells is never believed, as a bit error in it would have the checksum looked for in a wrong place. So a late answer to
another request, the answer of another unit, and noise before the answer are all passed over.
"""

from dataclasses import dataclass, field

from gateway.connectors.modbus.request import IS_EXCEPTION, Request
from gateway.connectors.reading import Unreadable

ANSWER_MAX = 4 * 260  # bytes; a unit that sends more is not answering
MBAP_SIZE = 7
PDU_MAX = 253


def _table_of_crc() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xA001 if crc & 1 else 0)
        table.append(crc)
    return table


CRC_TABLE = _table_of_crc()


def crc_of(data: bytes | bytearray) -> int:
    """Returns the CRC-16 of a frame [serial line, section 6.2.2]; it goes behind the frame, the low byte first."""
    crc, table = 0xFFFF, CRC_TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc


def lrc_of(data: bytes) -> int:
    """Returns the checksum of an ASCII frame [serial line, section 6.2.1]."""
    return -sum(data) & 0xFF


@dataclass(slots=True)
class Answers:
    """Looks for the answer to one request among the bytes that come.

    ``rest`` has the bytes behind the answer, once it was found. ``noise`` counts the bytes that were passed over.
    """

    unit: int
    request: Request
    buffer: bytearray = field(default_factory=bytearray)
    noise: int = 0

    def feed(self, data: bytes) -> bytes | None:
        """Takes bytes; returns the PDU of the answer if it is complete. Raises Unreadable after ANSWER_MAX bytes."""
        raise NotImplementedError

    @property
    def rest(self) -> bytes:
        return bytes(self.buffer)

    def ended(self) -> Unreadable:
        """Returns what is wrong if no more bytes come."""
        raise NotImplementedError

    def _pass_over(self, count: int) -> None:
        self.noise += count
        del self.buffer[:count]
        if self.noise > ANSWER_MAX:
            raise Unreadable(f"more than {ANSWER_MAX} bytes that are no answer")


class RtuAnswers(Answers):
    """Looks for an answer in RTU mode [serial line, section 2.5.1]."""

    has_wrong_checksum = False

    def feed(self, data: bytes) -> bytes | None:
        self.buffer += data
        while len(self.buffer) >= 2:
            size = self._size_here()
            if size == 0:
                self._pass_over(1)
            elif len(self.buffer) < size:
                return None
            elif crc_of(self.buffer[:size]):  # the CRC of a frame with its CRC is 0
                self._note_wrong()
                self._pass_over(1)
            else:
                found = bytes(self.buffer[1 : size - 2])
                del self.buffer[:size]
                return found
        return None

    def _size_here(self) -> int:
        """Returns the size of the frame that may begin with the buffer, 0 if none does."""
        buffer, request = self.buffer, self.request
        if buffer[0] != self.unit:
            return 0
        if buffer[1] == request.function | IS_EXCEPTION:
            return 5
        head = request.answer_head[: len(buffer) - 1]
        return 3 + request.answer_size if buffer.startswith(head, 1) else 0

    def _note_wrong(self) -> None:
        self.has_wrong_checksum = True

    def ended(self) -> Unreadable:
        if self.has_wrong_checksum:
            return Unreadable("a wrong checksum")
        if self.buffer or self.noise:
            return Unreadable(f"no answer to the request in {self.noise + len(self.buffer)} bytes")
        return Unreadable("no answer")


class AsciiAnswers(Answers):
    """Looks for an answer in ASCII mode [serial line, section 2.5.2]."""

    why = ""

    def feed(self, data: bytes) -> bytes | None:
        self.buffer += data
        while (start := self.buffer.rfind(b":", 0, end if (end := self.buffer.find(b"\r\n")) >= 0 else None)) >= 0:
            if start:
                self._pass_over(start)
                continue
            if end < 0:
                break
            frame = bytes(self.buffer[1:end])
            found = self._pdu_of(frame)
            if found is not None:
                del self.buffer[: end + 2]
                return found
            self._pass_over(end + 2)
        if len(self.buffer) > ANSWER_MAX:
            self._pass_over(len(self.buffer))
        return None

    def _pdu_of(self, frame: bytes) -> bytes | None:
        try:
            content = bytes.fromhex(frame.decode("ascii"))
        except ValueError:
            self.why = "bytes that are no hexadecimal digits"
            return None
        if len(frame) != 2 * len(content) or len(content) < 3 or sum(content) & 0xFF:
            self.why = "a wrong checksum"
            return None
        pdu = content[1:-1]
        is_exception = len(pdu) == 2 and pdu[0] == self.request.function | IS_EXCEPTION
        is_answer = len(pdu) == self.request.answer_size and pdu.startswith(self.request.answer_head)
        return pdu if content[0] == self.unit and (is_exception or is_answer) else None

    def ended(self) -> Unreadable:
        seen = self.noise + len(self.buffer)
        return Unreadable(self.why or (f"no answer to the request in {seen} bytes" if seen else "no answer"))


@dataclass(slots=True)
class TcpAnswers(Answers):
    """Looks for an answer with an MBAP header [MODBUS Messaging on TCP/IP V1.0b, section 3.1.3].

    ``transaction`` is the request's. An answer with another one is late, and is passed over. ``is_broken``: what came
    is no Modbus, so that the place of the next header is not known.
    """

    transaction: int = 0
    is_broken: bool = False

    def feed(self, data: bytes) -> bytes | None:
        self.buffer += data
        while len(self.buffer) >= MBAP_SIZE:
            size = int.from_bytes(self.buffer[4:6], "big")
            if self.buffer[2:4] != b"\0\0" or not 3 <= size <= PDU_MAX + 1:
                self.is_broken = True
                raise Unreadable("no header of Modbus over TCP")
            if len(self.buffer) < 6 + size:
                return None
            transaction, unit = int.from_bytes(self.buffer[:2], "big"), self.buffer[6]
            pdu = bytes(self.buffer[MBAP_SIZE : 6 + size])
            if transaction == self.transaction and unit == self.unit and self._may_be(pdu):
                del self.buffer[: 6 + size]
                return pdu
            self._pass_over(6 + size)
        return None

    def _may_be(self, pdu: bytes) -> bool:
        request = self.request
        is_exception = len(pdu) == 2 and pdu[0] == request.function | IS_EXCEPTION
        return is_exception or (len(pdu) == request.answer_size and pdu.startswith(request.answer_head))

    def ended(self) -> Unreadable:
        return Unreadable(f"no answer to the request in {self.noise} bytes" if self.noise else "no answer")


class Framing:
    """How frames of one line are made and found.

    ``has_transactions``: an answer tells to which request it belongs, however late it comes.
    """

    has_transactions = False

    def encode(self, unit: int, request: Request) -> bytes:
        """Returns the frame of a request to a unit."""
        raise NotImplementedError

    def answers(self, unit: int, request: Request) -> Answers:
        """Returns what looks for the answer to the request that was encoded last."""
        raise NotImplementedError

    def size_of_answer(self, request: Request) -> int:
        """Returns how many bytes an answer has on the line."""
        raise NotImplementedError


class RtuFraming(Framing):
    """RTU mode: unit, PDU, CRC-16."""

    def encode(self, unit: int, request: Request) -> bytes:
        frame = bytes((unit,)) + request.encode()
        return frame + crc_of(frame).to_bytes(2, "little")

    def answers(self, unit: int, request: Request) -> Answers:
        return RtuAnswers(unit, request)

    def size_of_answer(self, request: Request) -> int:
        return 3 + request.answer_size


class AsciiFraming(Framing):
    """ASCII mode: a colon, hexadecimal digits of unit, PDU and LRC, CR and LF."""

    def encode(self, unit: int, request: Request) -> bytes:
        frame = bytes((unit,)) + request.encode()
        return b":" + (frame + bytes((lrc_of(frame),))).hex().upper().encode() + b"\r\n"

    def answers(self, unit: int, request: Request) -> Answers:
        return AsciiAnswers(unit, request)

    def size_of_answer(self, request: Request) -> int:
        return 7 + 2 * request.answer_size


class TcpFraming(Framing):
    """Modbus over TCP: a header with a transaction's number, and no checksum."""

    has_transactions = True

    def __init__(self) -> None:
        self._transaction = 0

    def encode(self, unit: int, request: Request) -> bytes:
        self._transaction = (self._transaction + 1) & 0xFFFF
        pdu = request.encode()
        head = self._transaction.to_bytes(2, "big") + b"\0\0" + (len(pdu) + 1).to_bytes(2, "big")
        return head + bytes((unit,)) + pdu

    def answers(self, unit: int, request: Request) -> Answers:
        return TcpAnswers(unit, request, transaction=self._transaction)

    def size_of_answer(self, request: Request) -> int:
        return MBAP_SIZE + request.answer_size


FRAMINGS = {"modbus_rtu": RtuFraming, "modbus_ascii": AsciiFraming, "modbus_tcp": TcpFraming}
"""The framing of each kind of connector."""
