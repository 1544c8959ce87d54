"""The server's part of enhanced authentication (section 4.12), with any method that both ends know."""

from wire.codec.auth import Auth
from wire.errors import LocalProtocolError, RemoteProtocolError
from wire.properties import AUTHENTICATION_DATA, AUTHENTICATION_METHOD
from wire.reasons import CONTINUE_AUTHENTICATION, PROTOCOL_ERROR, RE_AUTHENTICATE


class ServerAuthentication:
    """The authentication of one client, whose CONNECT names `method`."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.is_waiting = False  # whether the client has to answer an AUTH

    def ask(self, data: bytes | None, reason_code: int) -> Auth:
        """Returns the AUTH to send. Raises LocalProtocolError if the client has not answered the last one."""
        if self.is_waiting:
            raise LocalProtocolError("no authentication of the client waits for an answer [MQTT-4.12.0-6]")
        properties: dict = {AUTHENTICATION_METHOD: self.method}
        if data is not None:
            properties[AUTHENTICATION_DATA] = data
        self.is_waiting = reason_code == CONTINUE_AUTHENTICATION
        return Auth(reason_code, properties)

    def hear(self, packet: Auth) -> None:
        """Takes a received AUTH. Raises RemoteProtocolError(0x82) for one that may not come now."""
        if packet.reason_code != (CONTINUE_AUTHENTICATION if self.is_waiting else RE_AUTHENTICATE):
            text = f"an AUTH with reason code 0x{packet.reason_code:02x} may not come now [MQTT-4.12.0-6]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)
        if packet.properties.get(AUTHENTICATION_METHOD) != self.method:
            text = "the AUTH names another authentication method than the CONNECT [MQTT-4.12.0-5]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)
        self.is_waiting = False
