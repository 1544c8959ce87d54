"""CONNACK (section 3.2)."""

from wire.codec import MQTT_5, Packet, check_reason_code, frame, read_properties, write_properties
from wire.errors import RemoteProtocolError
from wire.packet_types import CONNACK
from wire.primitives import Reader, malformed
from wire.reasons import PROTOCOL_ERROR, SUCCESS, UNSUPPORTED_PROTOCOL_VERSION

RETURN_CODES = b"\x00\x84\x85\x88\x86\x87"
"""The reason code of MQTT 5 for each return code of MQTT 3.1.1 (its table 3.1)."""


class Connack(Packet):
    """A CONNACK; `reason_code` is a code of MQTT 5 over MQTT 3.1.1 too."""

    TYPE = CONNACK
    __slots__ = FIELDS = ("session_present", "reason_code", "properties")

    _ALLOWED = b"\x00\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8c\x90\x95\x97\x99\x9a\x9b\x9c\x9d\x9f"

    def __init__(self, session_present: bool, reason_code: int = SUCCESS, properties: dict | None = None) -> None:
        self.session_present = session_present
        self.reason_code = reason_code
        self.properties = {} if properties is None else properties

    def encode(self, level: int = MQTT_5) -> bytes:
        code = self.reason_code
        if level != MQTT_5:
            from wire.codec.return_codes import nearest  # imported here: only a server needs it

            code = nearest(code, RETURN_CODES)
        head = bytes((1 if self.session_present else 0, code))
        return frame(CONNACK << 4, head + write_properties(self.properties, CONNACK, level))

    @classmethod
    def decode(cls, flags: int, body: bytes, level: int) -> "Connack":
        reader = Reader(body)
        acknowledge_flags = reader.byte()
        if acknowledge_flags > 1:
            raise malformed("a CONNACK has reserved flags set [MQTT-3.2.2-1]")
        reason_code = reader.byte()
        if level == MQTT_5:
            if len(body) == 2 or reason_code == 1:  # 1 is the return code for an unacceptable protocol level
                text = f"a server of MQTT 3.1.1 answers, with return code 0x{reason_code:02x} [3.1.1 MQTT-3.1.2-2]"
                raise RemoteProtocolError(UNSUPPORTED_PROTOCOL_VERSION, text)
        else:
            if reason_code >= len(RETURN_CODES):
                raise RemoteProtocolError(PROTOCOL_ERROR, f"return code {reason_code} is reserved [3.1.1 table 3.1]")
            reason_code = RETURN_CODES[reason_code]
        check_reason_code(reason_code, cls._ALLOWED, cls.__name__.upper())
        if acknowledge_flags and reason_code != SUCCESS:
            text = "a CONNACK that refuses has Session Present [MQTT-3.2.2-6]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)
        properties = read_properties(reader, CONNACK, level)
        reader.finish()
        return cls(acknowledge_flags == 1, reason_code, properties)
