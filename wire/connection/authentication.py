"""The client's part of enhanced authentication (section 4.12), with SCRAM or any other method that both ends know."""

from wire.codec.auth import Auth
from wire.errors import RemoteProtocolError
from wire.properties import AUTHENTICATION_DATA, AUTHENTICATION_METHOD
from wire.reasons import CONTINUE_AUTHENTICATION, PROTOCOL_ERROR, RE_AUTHENTICATE, SUCCESS


class ClientAuthentication:
    """One client's authentication; a ClientConnection calls it when CONNECT, CONNACK and AUTH packets are due.

    Args:
        method: the authentication method's name.
        respond: a function. It is called with None at the start of an exchange, and then with the Authentication Data
            (bytes) of each packet of the server. It returns the Authentication Data of the client's next packet, or
            None for a packet without data. The server's last data come with its success; the answer to them is not
            sent. `respond` raises RemoteProtocolError(NOT_AUTHORIZED, text) if the server's proof is wrong; this
            closes the connection.
    """

    PACKET = Auth

    def __init__(self, method: str, respond) -> None:
        self._method = method
        self._respond = respond
        self._again = False

    def begin(self) -> dict:
        """Returns the authentication properties of the CONNECT."""
        return self._properties(self._respond(None))

    def begin_again(self) -> Auth:
        """The first packet of a new exchange."""
        self._again = True
        return Auth(RE_AUTHENTICATE, self.begin())

    def answer(self, packet: Auth, connected: bool) -> Auth | None:
        """Returns the answer to a received AUTH; None if the exchange is over.

        Raises RemoteProtocolError(0x82) for an AUTH that may not come now [MQTT-4.12.0-5, MQTT-4.12.1-1].
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
        """Handles the properties of a CONNACK or AUTH with which the server accepts the client."""
        self._check(properties)
        if AUTHENTICATION_DATA in properties:
            self._respond(properties[AUTHENTICATION_DATA])

    def _check(self, properties: dict) -> None:
        if properties.get(AUTHENTICATION_METHOD) != self._method:
            text = "the server names another authentication method than ours [MQTT-4.12.0-5]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)

    def _properties(self, data: bytes | None) -> dict:
        properties: dict = {AUTHENTICATION_METHOD: self._method}
        if data is not None:
            properties[AUTHENTICATION_DATA] = data
        return properties
