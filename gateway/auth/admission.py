"""Logging in: from a CONNECT, and what the listener knows of its sender, to what that client may do."""

import logging
import secrets
from pathlib import Path
from typing import NamedTuple

from gateway.auth.accounts import Accounts
from gateway.auth.logins import Logins, ScramLogin
from gateway.auth.permissions import Access, Permissions
from gateway.auth.scram import METHOD, ScramError
from gateway.auth.watchers import Watchers
from gateway.log_fields import about
from gateway.message import message_from
from gateway.port import Port, Visitor
from gateway.streams.choice import StreamChoice
from gateway.streams.names import BadStream, place_of, stream_named
from gateway.streams.naming import enter
from wire.codec.packets import MQTT_5, Auth, Connect, Publish, Will
from wire.connection.server import ServerConnection
from wire.identity import check_name
from wire.properties import AUTHENTICATION_DATA, AUTHENTICATION_METHOD
from wire.reasons import (
    CLIENT_IDENTIFIER_NOT_VALID,
    IMPLEMENTATION_SPECIFIC_ERROR,
    NOT_AUTHORIZED,
    PROTOCOL_ERROR,
    SUCCESS,
    TOPIC_NAME_INVALID,
    describe,
)

logger = logging.getLogger(__name__)


class Refused(Exception):
    """A client may not log in. It gets the reason code; the text is for the log, and for the client if ``is_told``."""

    def __init__(self, reason_code: int, text: str, *, is_told: bool = False) -> None:
        super().__init__(text)
        self.reason_code = reason_code
        self.is_told = is_told


class AccessControl:
    """Decides which clients may log in, by the accounts and the access rules.

    Args:
        accounts: the accounts file; None: there are no accounts.
        access: the file of access rules; None: each client may do everything with its own identity.
        gateway: the gateway's name.
        streams: chooses the stream of a client's topics.

    ``watchers`` admits the visitors of the status page.

    Raises:
        ConfigError: a file cannot be used.
    """

    def __init__(
        self,
        accounts: Path | None = None,
        access: Path | None = None,
        *,
        gateway: str,
        streams: StreamChoice | None = None,
    ) -> None:
        self._streams = streams or StreamChoice()
        self.access = Access(access, gateway)
        self._accounts = Accounts(accounts) if accounts else None
        self._logins = Logins(self._accounts) if self._accounts else None
        self.watchers = Watchers(self.access, self._accounts, self._logins)

    @property
    def authentication_methods(self) -> tuple[str, ...]:
        """The authentication methods that a CONNECT may name."""
        return (METHOD,) if self._logins else ()

    async def admit(self, packet: Connect, visitor: Visitor, client_id: str, stream: str) -> Permissions:
        """Returns what the sender of a CONNECT without an authentication method may do. Raises Refused.

        ``client_id`` is the client identifier of the packet, or the assigned one if the packet has none. ``stream`` is
        the listener's.
        """
        return self._admit_user(packet, await self._identify(packet, visitor), client_id, stream)

    def begin_scram(self, packet: Connect | Auth, visitor: Visitor) -> tuple[ScramLogin, bytes]:
        """Begins the login of a CONNECT with SCRAM, or of an AUTH for a reauthentication.

        Returns the login and the authentication data of our AUTH. Raises Refused.
        """
        assert self._logins is not None
        login = self._logins.scram(visitor.host)
        try:
            return login, login.begin(packet.properties.get(AUTHENTICATION_DATA, b""))
        except ScramError as error:
            raise Refused(NOT_AUTHORIZED, str(error)) from error

    def finish_scram(
        self, packet: Connect, visitor: Visitor, client_id: str, login: ScramLogin, data: bytes, stream: str
    ) -> tuple[Permissions, bytes]:
        """Takes the data of the client's AUTH; returns what it may do, and the data of our CONNACK. Raises Refused."""
        try:
            proof = login.finish(data)
        except ScramError as error:
            raise Refused(NOT_AUTHORIZED, str(error)) from error
        names = {login.user, packet.username or login.user, visitor.certificate_user or login.user}
        if len(names) > 1:
            raise Refused(NOT_AUTHORIZED, "it has more than one name")
        return self._admit_user(packet, login.user, client_id, stream), proof

    def reload(self) -> set[str]:
        """Reads both files again; returns the users with a removed or changed account, to be disconnected.

        Raises:
            ConfigError: a file cannot be used; what was read from it before still holds.
        """
        self.access.reload()
        return self._accounts.reload() if self._accounts else set()

    async def close(self) -> None:
        """Ends the threads that check passwords; no client can log in any more."""
        if self._logins is not None:
            await self._logins.close()

    async def _identify(self, packet: Connect, visitor: Visitor) -> str | None:
        """Returns the user that a client has logged in as, None for a client that needs no account. Raises Refused."""
        if visitor.certificate_user is not None:
            if packet.username not in (None, visitor.certificate_user):
                raise Refused(NOT_AUTHORIZED, "its user name is not that of its certificate")
            return visitor.certificate_user
        if self._logins is None or (packet.username is None and packet.password is None):
            if visitor.may_be_anonymous:
                return None  # a user name without a check does not count
            raise Refused(NOT_AUTHORIZED, "it has to log in")
        code = await self._logins.check_password(visitor.host, packet.username, packet.password)
        if code != SUCCESS:
            raise Refused(code, describe(code))
        return packet.username

    def _admit_user(self, packet: Connect, user: str | None, client_id: str, stream: str) -> Permissions:
        try:
            permissions = self.access.permissions(user, client_id, self._streams.implied(packet, user, stream))
        except BadStream as error:
            raise Refused(IMPLEMENTATION_SPECIFIC_ERROR, str(error), is_told=True) from error
        if stream_named(packet.properties) is not None and not permissions.may_use_stream:
            raise Refused(NOT_AUTHORIZED, f"no rule lets its user into stream {permissions.stream!r}")
        if not permissions.may_connect(packet.client_id):
            raise Refused(CLIENT_IDENTIFIER_NOT_VALID, "its user may not have this client identifier")
        if packet.will is not None:
            stream, will = will_of(packet, permissions.stream)
            try:
                self._streams.check(stream)
            except BadStream as error:
                raise Refused(TOPIC_NAME_INVALID, f"the will: {error}", is_told=True) from error
            publish = Publish(will.topic, will.payload, properties=will.properties)
            if not permissions.in_stream(stream).may_send(message_from(publish, client_id, "", 0)):
                if packet.protocol_level == MQTT_5:
                    raise Refused(NOT_AUTHORIZED, "it may not publish its will")
                # Old devices cannot read why they are refused. The will is not published, and leaves a range.
                logger.warning("will denied", extra=about(client=client_id, user=user or "", topic=will.topic))
        return permissions


def will_of(packet: Connect, implied: str) -> tuple[str, Will]:
    """Returns the stream of a CONNECT's will, and the will as it is there. Raises Refused: it cannot be read."""
    will = packet.will
    assert will is not None
    publish = Publish(will.topic, will.payload, will.qos, will.retain, properties=will.properties)
    try:
        place = place_of(will.topic, stream_named(will.properties), implied)
        inside = enter(publish, place, implied)
    except BadStream as error:
        raise Refused(TOPIC_NAME_INVALID, f"the will: {error}", is_told=True) from error
    return place.stream, Will(place.topic, will.payload, will.qos, will.retain, properties=inside.properties)


class Admitted(NamedTuple):
    """A client that may log in; ``proof`` is the authentication data of its CONNACK, if any."""

    packet: Connect
    client_id: str
    permissions: Permissions
    proof: bytes | None = None


class Admission:
    """The login of one client. Each method raises Refused if the client may not log in.

    Args:
        access_control: decides.
        protocol: the connection.
        port: its line.
        stream: the stream of its listener, "" for the default one.
    """

    __slots__ = (
        "_access_control",
        "_client_id",
        "_login",
        "_packet",
        "_port",
        "_protocol",
        "_stream",
    )

    def __init__(self, access_control: "AccessControl", protocol: ServerConnection, port: Port, stream: str) -> None:
        self._stream = stream
        self._access_control = access_control
        self._protocol = protocol
        self._port = port
        self._packet = Connect("")
        self._client_id = ""
        self._login: ScramLogin | None = None

    async def handle_connect(self, packet: Connect) -> Admitted | None:
        """Returns the client if it may log in; None while enhanced authentication goes on."""
        try:
            check_name("the client identifier", packet.client_id)
        except ValueError as error:
            raise Refused(CLIENT_IDENTIFIER_NOT_VALID, str(error)) from error
        self._packet = packet
        self._client_id = packet.client_id or f"hf-{secrets.token_hex(8)}"
        if AUTHENTICATION_METHOD in packet.properties:
            self._begin(packet)
            return None
        permissions = await self._access_control.admit(packet, self._port.visitor, self._client_id, self._stream)
        return Admitted(packet, self._client_id, permissions)

    def handle_auth(self, packet: Auth) -> Admitted:
        """Takes the client's proof; returns the client."""
        permissions, proof = self._finish(packet)
        return Admitted(self._packet, self._client_id, permissions, proof)

    def handle_auth_again(self, packet: Auth, user: str | None) -> None:
        """Takes an AUTH of a connected client that reauthenticates [MQTT-4.12.1-1]."""
        if self._login is None:
            self._begin(packet)
            return
        permissions, proof = self._finish(packet)
        if permissions.user != user:
            raise Refused(NOT_AUTHORIZED, "it reauthenticates as another user")
        self._protocol.authenticate(proof, SUCCESS)

    def _begin(self, packet: Connect | Auth) -> None:
        self._login, answer = self._access_control.begin_scram(packet, self._port.visitor)
        self._protocol.authenticate(answer)

    def _finish(self, packet: Auth) -> tuple[Permissions, bytes]:
        login, self._login = self._login, None
        if login is None:
            raise Refused(PROTOCOL_ERROR, "an AUTH without a login that is in progress")
        data = packet.properties.get(AUTHENTICATION_DATA, b"")
        return self._access_control.finish_scram(
            self._packet, self._port.visitor, self._client_id, login, data, self._stream
        )
