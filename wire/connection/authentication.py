"""Enhanced authentication (section 4.12), the client's part: SCRAM, Kerberos, whatever both ends agree on."""

from wire.codec.auth import Auth
from wire.errors import RemoteProtocolError
from wire.properties import AUTHENTICATION_DATA, AUTHENTICATION_METHOD
from wire.reasons import CONTINUE_AUTHENTICATION, PROTOCOL_ERROR, RE_AUTHENTICATE, SUCCESS


class ClientAuthentication:
    """Give it to a ClientConnection, which leads the exchange with it.

    Args:
        method: the authentication method's name.
        respond: called with each data (bytes) that the server sends, and with None at the start of an exchange;
            returns the data to answer with, or None for none. What it returns to the server's last word, which comes
            with its success, is not sent. It raises RemoteProtocolError(NOT_AUTHORIZED, why) to end the connection
            where the server does not prove itself.
    """

    PACKET = Auth

    def __init__(self, method: str, respond) -> None:
        self._method = method
        self._respond = respond
        self._again = False

    def begin(self) -> dict:
        """The properties of the CONNECT."""
        return self._properties(self._respond(None))

    def begin_again(self) -> Auth:
        """The first packet of a new exchange."""
        self._again = True
        return Auth(RE_AUTHENTICATE, self.begin())

    def answer(self, packet: Auth, connected: bool) -> Auth | None:
        """The answer to an AUTH; None where the exchange is over.

        Raises RemoteProtocolError(0x82) for one that may not come now [MQTT-4.12.0-5, MQTT-4.12.1-1].
        """
        code = packet.reason_code
        if code == RE_AUTHENTICATE or (code == SUCCESS and not connected) or (connected and not self._again):
            raise RemoteProtocolError(PROTOCOL_ERROR, f"an AUTH with reason code 0x{code:02x} may not come now")
        if code == CONTINUE_AUTHENTICATION:
            self._check(packet.properties)
            data = self._respond(packet.properties.get(AUTHENTICATION_DATA, b""))
            return Auth(CONTINUE_AUTHENTICATION, self._properties(data))
        self._again = False
        self.finish(packet.properties)
        return None

    def finish(self, properties: dict) -> None:
        """The server's success, in a CONNACK or an AUTH."""
        self._check(properties)
        if AUTHENTICATION_DATA in properties:
            self._respond(properties[AUTHENTICATION_DATA])

    def _check(self, properties: dict) -> None:
        if properties.get(AUTHENTICATION_METHOD) != self._method:
            raise RemoteProtocolError(PROTOCOL_ERROR, "another authentication method than ours [MQTT-4.12.0-5]")

    def _properties(self, data: bytes | None) -> dict:
        properties: dict = {AUTHENTICATION_METHOD: self._method}
        if data is not None:
            properties[AUTHENTICATION_DATA] = data
        return properties
