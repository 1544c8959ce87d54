"""A client on its way in: from its CONNECT, over what proves who it is, to what it may do."""

import secrets
from typing import TYPE_CHECKING, NamedTuple

from gateway.access import Permissions
from gateway.doorkeeper import Refused
from gateway.logins import ScramLogin
from gateway.port import Port
from wire.identity import check_name
from wire.packets import Auth, Connect
from wire.properties import AUTHENTICATION_DATA, AUTHENTICATION_METHOD
from wire.reasons import CLIENT_IDENTIFIER_NOT_VALID, NOT_AUTHORIZED, PROTOCOL_ERROR, SUCCESS
from wire.server import ServerConnection

if TYPE_CHECKING:
    from gateway.doorkeeper import Doorkeeper


class Admitted(NamedTuple):
    """Somebody who may come in; ``proof`` is what the CONNACK says in enhanced authentication."""

    packet: Connect
    client_id: str
    permissions: Permissions
    proof: bytes | None = None


class Arrival:
    """Leads one client in. Whoever is turned away is told by ``Refused``.

    Args:
        doorkeeper: who decides.
        protocol: the connection.
        port: its line.
    """

    def __init__(self, doorkeeper: "Doorkeeper", protocol: ServerConnection, port: Port) -> None:
        self._doorkeeper = doorkeeper
        self._protocol = protocol
        self._port = port
        self._packet = Connect("")
        self._client_id = ""
        self._login: ScramLogin | None = None

    async def handle_connect(self, packet: Connect) -> Admitted | None:
        """Returns who may come in, None while there is more to be proved."""
        try:
            check_name("the client identifier", packet.client_id)
        except ValueError as error:
            raise Refused(CLIENT_IDENTIFIER_NOT_VALID, str(error)) from error
        self._packet = packet
        self._client_id = packet.client_id or f"hf-{secrets.token_hex(8)}"
        if AUTHENTICATION_METHOD in packet.properties:
            self._begin(packet)
            return None
        permissions = await self._doorkeeper.admit(packet, self._port.visitor, self._client_id)
        return Admitted(packet, self._client_id, permissions)

    def handle_auth(self, packet: Auth) -> Admitted:
        """Takes the client's proof; returns who may come in."""
        permissions, proof = self._finish(packet)
        return Admitted(self._packet, self._client_id, permissions, proof)

    def handle_auth_again(self, packet: Auth, user: str | None) -> None:
        """Takes the AUTHs of one that is in and proves again who it is [MQTT-4.12.1-1]."""
        if self._login is None:
            self._begin(packet)
            return
        permissions, proof = self._finish(packet)
        if permissions.user != user:
            raise Refused(NOT_AUTHORIZED, "it proves to be somebody else")
        self._protocol.authenticate(proof, SUCCESS)

    def _begin(self, packet: Connect | Auth) -> None:
        self._login, answer = self._doorkeeper.begin_scram(packet, self._port.visitor)
        self._protocol.authenticate(answer)

    def _finish(self, packet: Auth) -> tuple[Permissions, bytes]:
        login, self._login = self._login, None
        if login is None:
            raise Refused(PROTOCOL_ERROR, "an AUTH that answers nothing")
        data = packet.properties.get(AUTHENTICATION_DATA, b"")
        return self._doorkeeper.finish_scram(self._packet, self._port.visitor, self._client_id, login, data)
