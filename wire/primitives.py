"""MQTT's integers, strings and binary fields (section 1.5), read at an offset and written as bytes."""

from wire.errors import LocalProtocolError, RemoteProtocolError
from wire.reasons import MALFORMED_PACKET

LENGTH_MAX = 65_535
VARINT_MAX = 268_435_455


class Reader:
    """Reads the fields of one packet's `body` in order, from `offset` on.

    Every method raises RemoteProtocolError(0x81) if the field is cut off or malformed.
    """

    def __init__(self, body: bytes, offset: int = 0) -> None:
        self.body = body
        self.offset = offset

    def read(self, length: int) -> bytes:
        start = self.offset
        end = start + length
        if end > len(self.body):
            raise malformed(f"{length} bytes expected at byte {start} of {len(self.body)}")
        self.offset = end
        return self.body[start:end]

    def byte(self) -> int:
        offset = self.offset
        if offset >= len(self.body):
            raise malformed(f"a byte expected at the end, byte {offset}")
        self.offset = offset + 1
        return self.body[offset]

    def u16(self) -> int:
        offset = self.offset
        body = self.body
        if offset + 2 > len(body):
            raise malformed(f"2 bytes expected at byte {offset} of {len(body)}")
        self.offset = offset + 2
        return body[offset] << 8 | body[offset + 1]

    def u32(self) -> int:
        return int.from_bytes(self.read(4), "big")

    def varint(self) -> int:
        offset = self.offset
        if offset < len(self.body) and self.body[offset] < 0x80:
            self.offset = offset + 1
            return self.body[offset]
        value, end = decode_varint(self.body, offset)
        if end == 0:
            raise malformed("a variable byte integer is cut off")
        self.offset = end
        return value

    def binary(self) -> bytes:
        start = self.offset + 2
        body = self.body
        size = len(body)
        end = start + (body[start - 2] << 8 | body[start - 1]) if start <= size else start
        if end > size:
            raise malformed(f"a field with its length ends at byte {end} of {size}")
        self.offset = end
        return body[start:end]

    def string(self) -> str:
        return decode_string(self.binary())

    def at_end(self) -> bool:
        return self.offset == len(self.body)

    def finish(self) -> None:
        """Raises RemoteProtocolError if anything follows the last field."""
        if self.offset != len(self.body):
            raise malformed(f"{len(self.body) - self.offset} bytes follow the last field")


def malformed(text: str) -> RemoteProtocolError:
    return RemoteProtocolError(MALFORMED_PACKET, text)


def decode_varint(buffer: bytes | bytearray, offset: int) -> tuple[int, int]:
    """Decodes a variable byte integer: (value, offset of the next byte); (0, 0) if the buffer ends too soon."""
    value = shift = 0
    for position in range(offset, min(offset + 4, len(buffer))):
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                raise malformed("a variable byte integer is longer than it need be [MQTT-1.5.5-1]")
            return value, position + 1
        shift += 7
    if shift == 28:
        raise malformed("a variable byte integer has more than four bytes")
    return 0, 0


def encode_varint(value: int) -> bytes:
    """Encodes a variable byte integer. Raises LocalProtocolError above 268,435,455."""
    if value < 0x80:
        return bytes((value,))
    if value > VARINT_MAX:
        raise LocalProtocolError(f"{value} does not fit a variable byte integer")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def decode_string(encoded: bytes) -> str:
    """Decodes UTF-8; refuses U+0000 and surrogates [MQTT-1.5.4-1, MQTT-1.5.4-2]."""
    try:
        text = str(encoded, "utf-8")
    except ValueError:
        raise malformed("a string is not UTF-8 [MQTT-1.5.4-1]")
    if len(text) != len(encoded):
        _check_scalar_values(text, len(encoded))
    if "\0" in text:
        raise malformed("a string holds U+0000 [MQTT-1.5.4-2]")
    return text


def _check_scalar_values(text: str, encoded_length: int) -> None:
    # MicroPython's decoder accepts surrogates, overlong forms and numbers beyond Unicode.
    for character in text:
        number = ord(character)
        if 0xD800 <= number <= 0xDFFF or number > 0x10FFFF:
            raise malformed("a string holds a number that is no character [MQTT-1.5.4-1]")
        encoded_length -= 1 if number < 0x80 else 2 if number < 0x800 else 3 if number < 0x10000 else 4
    if encoded_length:
        raise malformed("a string is not UTF-8 in its shortest form [MQTT-1.5.4-1]")


def encode_string(text: str) -> bytes:
    """Encodes a string with its length. Raises LocalProtocolError for U+0000, surrogates and above 65,535 bytes."""
    if "\0" in text:
        raise LocalProtocolError("a string holds U+0000 [MQTT-1.5.4-2]")
    try:
        encoded = text.encode("utf-8")
    except ValueError:
        raise LocalProtocolError("a string holds a surrogate [MQTT-1.5.4-1]")
    return encode_binary(encoded)


def encode_binary(field: bytes) -> bytes:
    """Encodes bytes with their length. Raises LocalProtocolError above 65,535 bytes."""
    length = len(field)
    if length > LENGTH_MAX:
        raise LocalProtocolError(f"a field has {length} bytes; {LENGTH_MAX} is the most")
    return length.to_bytes(2, "big") + field


def encode_integer(value: int, size: int) -> bytes:
    """Encodes an integer in `size` bytes. Raises LocalProtocolError if it does not fit."""
    if not 0 <= value < 1 << 8 * size:
        raise LocalProtocolError(f"{value} does not fit {size} bytes")
    return value.to_bytes(size, "big")
