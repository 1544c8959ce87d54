"""From a stream of bytes to packets."""

from wire.errors import RemoteProtocolError
from wire.packet_types import PUBLISH
from wire.packets.connect import Connack, Connect
from wire.packets.control import Auth, Disconnect, Pingreq, Pingresp
from wire.packets.packet import Packet
from wire.packets.publish import Puback, Pubcomp, Publish, Pubrec, Pubrel
from wire.packets.subscribe import Suback, Subscribe, Unsuback, Unsubscribe
from wire.primitives import VARINT_MAX, decode_varint, malformed
from wire.reasons import PACKET_TOO_LARGE

PACKET_SIZE_MAX = VARINT_MAX + 5

_CLASSES = {
    kind.TYPE: kind
    for kind in (
        Connect,
        Connack,
        Publish,
        Puback,
        Pubrec,
        Pubrel,
        Pubcomp,
        Subscribe,
        Suback,
        Unsubscribe,
        Unsuback,
        Pingreq,
        Pingresp,
        Disconnect,
        Auth,
    )
}
_FLAGS_TWO = (6, 8, 10)  # PUBREL, SUBSCRIBE and UNSUBSCRIBE carry 0b0010, table 2-2


class Decoder:
    """Cuts packets out of the bytes fed to it, however they were split.

    Args:
        maximum_packet_size: bytes of the largest packet taken, fixed header included.
    """

    def __init__(self, maximum_packet_size: int = PACKET_SIZE_MAX) -> None:
        self._maximum_packet_size = maximum_packet_size
        self._buffer: bytes | bytearray = b""
        self._offset = 0

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        if self._offset == len(self._buffer):
            self._buffer = bytes(data)  # no copy where bytes come in and nothing is left over: the usual case
        else:
            if isinstance(self._buffer, bytes):
                self._buffer = bytearray(self._buffer[self._offset :])
            else:
                self._buffer[: self._offset] = b""
            self._buffer += data
        self._offset = 0

    def next_packet(self) -> Packet | None:
        """The next packet, or None until more is fed.

        Raises RemoteProtocolError with the reason code of the standard; the stream is then of no more use, and
        every further call raises the same.
        """
        buffer = self._buffer
        offset = self._offset
        if len(buffer) - offset < 2:
            return None
        length = buffer[offset + 1]
        start = offset + 2
        if length & 0x80:
            length, start = decode_varint(buffer, offset + 1)
            if start == 0:
                return None
        first_byte = buffer[offset]
        kind = _class_of(first_byte)
        end = start + length
        if end - offset > self._maximum_packet_size:
            text = f"a {kind.__name__.upper()} of {end - offset} bytes; {self._maximum_packet_size} is the most"
            raise RemoteProtocolError(PACKET_TOO_LARGE, text)
        if end > len(buffer):
            return None
        packet = kind.decode(first_byte & 0x0F, bytes(buffer[start:end]))
        self._offset = end
        return packet


def _class_of(first_byte: int):
    packet_type = first_byte >> 4
    kind = _CLASSES.get(packet_type)
    if kind is None:
        raise malformed("packet type 0 is reserved")
    flags = 2 if packet_type in _FLAGS_TWO else 0
    if packet_type != PUBLISH and first_byte & 0x0F != flags:
        raise malformed(f"a {kind.__name__.upper()} has flags 0x{first_byte & 0x0F:x} [MQTT-2.1.3-1]")
    return kind
