"""Who comes in: from a CONNECT, and what the listener knows of its sender, to what that client may do."""

from pathlib import Path

from gateway.access import Access, Permissions
from gateway.accounts import Accounts
from gateway.logins import Logins, ScramLogin
from gateway.message import message_from
from gateway.port import Visitor
from gateway.scram import METHOD, ScramError
from wire.packets import Auth, Connect, Publish
from wire.properties import AUTHENTICATION_DATA
from wire.reasons import CLIENT_IDENTIFIER_NOT_VALID, NOT_AUTHORIZED, SUCCESS, describe


class Refused(Exception):
    """A client does not come in; it is told the reason code, the text is for the log."""

    def __init__(self, reason_code: int, text: str) -> None:
        super().__init__(text)
        self.reason_code = reason_code


class Doorkeeper:
    """Lets clients in, by the accounts and the access rules.

    Args:
        accounts: the accounts' file; None: nobody has an account.
        access: the access rules' file; None: who is in may do everything in its own name.
        gateway: the gateway's name.

    Raises:
        ConfigError: a file cannot be used.
    """

    def __init__(self, accounts: Path | None = None, access: Path | None = None, gateway: str = "") -> None:
        self.access = Access(access, gateway)
        self._accounts = Accounts(accounts) if accounts else None
        self._logins = Logins(self._accounts) if self._accounts else None

    @property
    def authentication_methods(self) -> tuple[str, ...]:
        """The methods of enhanced authentication that a CONNECT may name."""
        return (METHOD,) if self._logins else ()

    async def admit(self, packet: Connect, visitor: Visitor, client_id: str) -> Permissions:
        """Returns what the sender of a CONNECT without an authentication method may do. Raises Refused.

        ``client_id`` is the packet's, or the one that is assigned where it has none.
        """
        return self._admit_user(packet, await self._identify(packet, visitor), client_id)

    def begin_scram(self, packet: Connect | Auth, visitor: Visitor) -> tuple[ScramLogin, bytes]:
        """Begins the login of a CONNECT with SCRAM, or of an AUTH by which a client proves again who it is.

        Returns it and the data of our AUTH. Raises Refused.
        """
        assert self._logins is not None
        login = self._logins.scram(visitor.host)
        try:
            return login, login.begin(packet.properties.get(AUTHENTICATION_DATA, b""))
        except ScramError as error:
            raise Refused(NOT_AUTHORIZED, str(error)) from error

    def finish_scram(
        self, packet: Connect, visitor: Visitor, client_id: str, login: ScramLogin, data: bytes
    ) -> tuple[Permissions, bytes]:
        """Takes the data of the client's AUTH; returns what it may do and the data of our CONNACK. Raises Refused."""
        try:
            proof = login.finish(data)
        except ScramError as error:
            raise Refused(NOT_AUTHORIZED, str(error)) from error
        names = {login.user, packet.username or login.user, visitor.certificate_user or login.user}
        if len(names) > 1:
            raise Refused(NOT_AUTHORIZED, "it has more than one name")
        return self._admit_user(packet, login.user, client_id), proof

    def reload(self) -> set[str]:
        """Reads both files again; returns the users whose account is gone or another, whose connections have to end.

        Raises:
            ConfigError: a file cannot be used; what was read from it before stays.
        """
        self.access.reload()
        return self._accounts.reload() if self._accounts else set()

    async def close(self) -> None:
        """Nobody comes in any more."""
        if self._logins is not None:
            await self._logins.close()

    async def _identify(self, packet: Connect, visitor: Visitor) -> str | None:
        """Returns the user that a client has proved to be, None for one that needs no proof. Raises Refused."""
        if visitor.certificate_user is not None:
            if packet.username not in (None, visitor.certificate_user):
                raise Refused(NOT_AUTHORIZED, "its user name is not that of its certificate")
            return visitor.certificate_user
        if self._logins is None or (packet.username is None and packet.password is None):
            if visitor.may_be_anonymous:
                return None  # a name that nobody has checked is no name
            raise Refused(NOT_AUTHORIZED, "it has to log in")
        code = await self._logins.check_password(visitor.host, packet.username, packet.password)
        if code != SUCCESS:
            raise Refused(code, describe(code))
        return packet.username

    def _admit_user(self, packet: Connect, user: str | None, client_id: str) -> Permissions:
        permissions = self.access.permissions(user, client_id)
        if not permissions.may_connect(packet.client_id):
            raise Refused(CLIENT_IDENTIFIER_NOT_VALID, "its user may not have this client identifier")
        if packet.will is not None:
            will = packet.will
            publish = Publish(will.topic, will.payload, properties=will.properties)
            if not permissions.may_send(message_from(publish, client_id, "", 0)):
                raise Refused(NOT_AUTHORIZED, "it may not publish its will")
        return permissions
