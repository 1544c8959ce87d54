"""PacketDecoder finds the packets in a stream of bytes."""

from wire.codec import MQTT_5, Packet
from wire.codec.acknowledge import Puback, Pubcomp, Pubrec, Pubrel
from wire.codec.connack import Connack
from wire.codec.control import Disconnect, Pingresp
from wire.codec.publish import Publish
from wire.errors import RemoteProtocolError
from wire.packet_types import AUTH, CONNECT, PUBLISH, PUBREL, SUBSCRIBE, UNSUBSCRIBE
from wire.primitives import VARINT_MAX, decode_varint, malformed
from wire.reasons import PACKET_TOO_LARGE, PROTOCOL_ERROR

PACKET_SIZE_MAX = VARINT_MAX + 5

TO_CLIENT = {
    kind.TYPE: kind.decode for kind in (Connack, Publish, Puback, Pubrec, Pubrel, Pubcomp, Pingresp, Disconnect)
}
"""The packets that a client reads. It adds SUBACK, UNSUBACK and AUTH when it sends a packet that they answer."""


class PacketDecoder:
    """Finds the packets in the bytes that it is fed, which may be split anywhere.

    Args:
        readers: {packet type: a function of (flags, body, level)} for each packet that the peer may send.
        maximum_packet_size: bytes of the largest packet that is accepted, with its fixed header.
        level: the protocol level; it may change between two packets.

    If the attribute `ignores_flags` is true, only PUBLISH may be rejected for its flags: MQTT 3.1 does not define them
    for other packets.
    """

    def __init__(self, readers: dict, maximum_packet_size: int = PACKET_SIZE_MAX, level: int = MQTT_5) -> None:
        self.level = level
        self.ignores_flags = False
        self._readers = readers
        self._maximum_packet_size = maximum_packet_size
        self._buffer: bytes | bytearray = b""
        self._offset = 0

    def add_reader(self, kind) -> None:
        """Accepts packets of this class from now on."""
        if kind.TYPE not in self._readers:
            self._readers = dict(self._readers)
            self._readers[kind.TYPE] = kind.decode

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        if self._offset == len(self._buffer):
            self._buffer = bytes(data)  # usually nothing is left over, and `bytes` of bytes makes no copy
        else:
            if isinstance(self._buffer, bytes):
                self._buffer = bytearray(self._buffer[self._offset :])
            else:
                self._buffer[: self._offset] = b""
            self._buffer += data
        self._offset = 0

    def next_packet(self) -> Packet | None:
        """Returns the next packet, or None until more bytes are fed.

        Raises RemoteProtocolError with the reason code of the standard. No later packet can be read then, and every
        further call raises the same error.
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
        read = self._reader_of(first_byte)
        end = start + length
        if end - offset > self._maximum_packet_size:
            text = f"a packet of {end - offset} bytes; {self._maximum_packet_size} is the most"
            raise RemoteProtocolError(PACKET_TOO_LARGE, text)
        if end > len(buffer):
            return None
        packet = read(first_byte & 0x0F, bytes(buffer[start:end]), self.level)
        if end == len(buffer):
            self._buffer, end = b"", 0  # frees the memory of a large packet at once
        self._offset = end
        return packet

    def _reader_of(self, first_byte: int):
        packet_type = first_byte >> 4
        if packet_type == 0 or (packet_type == AUTH and self.level != MQTT_5):
            raise malformed(f"packet type {packet_type} is reserved")
        # The decoding functions of CONNECT and PUBLISH check the flags themselves; a CONNECT's depend on its level.
        if packet_type not in (CONNECT, PUBLISH) and not self.ignores_flags:
            flags = 2 if packet_type in (PUBREL, SUBSCRIBE, UNSUBSCRIBE) else 0  # table 2-2
            if first_byte & 0x0F != flags:
                raise malformed(f"packet type {packet_type} has flags 0x{first_byte & 0x0F:x} [MQTT-2.1.3-1]")
        read = self._readers.get(packet_type)
        if read is None:
            raise RemoteProtocolError(PROTOCOL_ERROR, f"this side may not send packet type {packet_type}")
        return read
