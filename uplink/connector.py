"""How a route gets a connection to its broker: to which server, and in which version of MQTT."""

import asyncio
import logging
import ssl
from collections import defaultdict
from itertools import islice
from typing import NamedTuple

from gateway.routes import ConfigError, reason_of
from uplink.config import RouteConfig
from uplink.credentials import Credentials
from uplink.notes import RouteNotes
from uplink.remote import MAXIMUM_PACKET_SIZE, Remote
from uplink.server import Server, parse_server, servers_referred_to
from uplink.version import SpokenVersion
from uplink.websocket import WebSocket
from wire.bulk.connection import Acknowledgements, BulkClientConnection
from wire.codec.packets import MQTT_3_1_1, MQTT_5, Connack, Packet
from wire.reasons import SERVER_MOVED, SUCCESS, UNSUPPORTED_PROTOCOL_VERSION, USE_ANOTHER_SERVER

CONNECT_DEADLINE_S = 10.0
REFERENCES_MOST = 3  # that are followed, one after the other
RETURN_S = 300.0  # between two looks whether an earlier server can be reached again

logger = logging.getLogger(__name__)


class LinkDown(Exception):
    """The connection to the next broker could not be made, or is over; the text says why."""


class Unanswered(LinkDown):
    """The broker closed the connection instead of an answer to our CONNECT."""


class WrongVersion(LinkDown):
    """The broker does not speak the version of our CONNECT."""


class Referred(LinkDown):
    """The server names others that should be used [section 4.13]."""

    def __init__(self, text: str, servers: list[Server]) -> None:
        super().__init__(text)
        self.servers = servers


class Accepted(NamedTuple):
    """A connection that a server has accepted."""

    client: BulkClientConnection
    remote: Remote
    connack: Connack


class Connector:
    """Connects to the first of a route's servers that accepts it, and returns to an earlier one when it is back.

    It speaks MQTT 5. Where the server refuses that, it speaks 3.1.1, and asks for MQTT 5 again after an hour.

    A server may have kept a session from a time before the route used another one. Packet identifiers of QoS 2 that it
    holds would swallow later messages, so on another server than the last one the session starts clean.

    Args:
        config: the route.
        client_id: its client identifier.
        notes: the route's note, with the last server.
    """

    def __init__(self, config: RouteConfig, client_id: str, notes: RouteNotes) -> None:
        self._config = config
        self._client_id = client_id
        self._notes = notes
        self._is_noted = False
        self._credentials = Credentials(config)
        self._servers = [parse_server(url) for url in (config.broker, *config.fallbacks)]
        self._versions: defaultdict[Server, SpokenVersion] = defaultdict(SpokenVersion)
        self._last: tuple[Remote, Server] | None = None
        self._return: asyncio.Task[None] | None = None

    async def connect(self) -> Accepted:
        """Returns a new connection. Raises LinkDown, sqlite3.Error."""
        if not self._is_noted:
            await self._notes.load()
            self._is_noted = True
        password, context = await self._read_credentials()
        reasons: list[str] = []
        for server in self._in_order():
            try:
                accepted, server = await self._follow(server, password, context)
            except LinkDown as error:
                reasons.append(f"{server}: {error}" if self._config.fallbacks else str(error))
            else:
                await self._take_up(server, accepted.remote, context)
                return accepted
        raise LinkDown("; ".join(reasons))

    def _in_order(self) -> list[Server]:
        """Returns the servers to try: first those to which the last one has referred when it ended the connection."""
        if self._last is None or self._last[0].closed is None:
            return self._servers
        (remote, server), self._last = self._last, None
        assert remote.closed is not None
        return [*islice(servers_referred_to(remote.closed.server_reference, server), 1), *self._servers]

    async def _follow(
        self, server: Server, password: bytes | None, context: ssl.SSLContext | None
    ) -> tuple[Accepted, Server]:
        """Connects to a server, or to the one to which it refers, a few times."""
        for _ in range(REFERENCES_MOST):
            try:
                return await self._connect_to(server, password, context), server
            except Referred as error:
                if not error.servers:
                    raise
                server = error.servers[0]
        return await self._connect_to(server, password, context), server

    async def _take_up(self, server: Server, remote: Remote, context: ssl.SSLContext | None) -> None:
        """Notes the server durably before anything is sent to it, and looks for the way back to an earlier one."""
        try:
            self._notes.note.server = str(server)
            await self._notes.save()
        except BaseException:
            remote.close("the route ends")
            raise
        self._last = remote, server
        if server != self._servers[0]:
            logger.warning("route %s: connected to %s instead of %s", self._config.name, server, self._servers[0])
        if server in self._servers[1:]:
            earlier = self._servers[: self._servers.index(server)]
            self._return = asyncio.get_running_loop().create_task(_return_to(earlier, remote, context))
            remote.ended.add_done_callback(lambda _: self._return and self._return.cancel())

    async def _connect_to(self, server: Server, password: bytes | None, context: ssl.SSLContext | None) -> Accepted:
        version, loop = self._versions[server], asyncio.get_running_loop()
        if version.tries_5(loop.time()):
            try:
                accepted = await self._try(server, MQTT_5, password, context)
            except (Unanswered, WrongVersion) as error:
                if not version.may_speak_3_1_1(says_so=isinstance(error, WrongVersion)):
                    raise
            else:
                version.note_5()
                return accepted
        try:
            accepted = await self._try(server, MQTT_3_1_1, password, context)
        except WrongVersion:
            version.note_not_3_1_1()
            raise
        if version.note_3_1_1(loop.time()):
            logger.warning("route %s to %s: it speaks MQTT 3.1.1, so no identities go there", self._config.name, server)
        return accepted

    async def _read_credentials(self) -> tuple[bytes | None, ssl.SSLContext | None]:
        try:
            return await asyncio.get_running_loop().run_in_executor(None, self._credentials.read)
        except ConfigError as error:
            raise LinkDown(str(error)) from error

    async def _try(
        self, server: Server, level: int, password: bytes | None, context: ssl.SSLContext | None
    ) -> Accepted:
        last = self._notes.note.server
        client = BulkClientConnection(
            self._client_id,
            protocol_level=level,
            clean_start=bool(last) and last != str(server),
            keep_alive_s=self._config.keep_alive_s,
            maximum_packet_size=MAXIMUM_PACKET_SIZE,
            username=self._config.user,
            password=password,
            retry_interval_ms=0,
        )
        connack: asyncio.Future[Connack] = asyncio.get_running_loop().create_future()
        remote = Remote(client, lambda packet: _note_connack(packet, connack))
        try:
            await _open(server, remote, connack, context if server.is_encrypted else None)
        except BaseException:
            remote.close("the route ends")
            raise
        return Accepted(client, remote, connack.result())


async def _open(
    server: Server, remote: Remote, connack: asyncio.Future[Connack], context: ssl.SSLContext | None
) -> None:
    line = WebSocket(remote, server) if server.path else remote
    transport: asyncio.BaseTransport | None = None
    try:
        async with asyncio.timeout(CONNECT_DEADLINE_S):
            transport, _ = await asyncio.get_running_loop().create_connection(
                lambda: line, server.host, server.port, ssl=context
            )
            await asyncio.wait((connack, remote.ended), return_when=asyncio.FIRST_COMPLETED)
    except TimeoutError:
        raise LinkDown(f"no answer in {CONNECT_DEADLINE_S:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise LinkDown(f"cannot connect: its certificate is refused: {error.verify_message}") from None
    except ssl.SSLError as error:
        raise LinkDown(f"cannot connect: TLS failed: {reason_of(error)}") from None
    except OSError as error:
        raise LinkDown(f"cannot connect: {error.strerror or error}") from None
    finally:
        if transport is not None and not connack.done():
            transport.close()
    if not connack.done():
        raise _failure(remote, server)


async def _return_to(earlier: list[Server], remote: Remote, context: ssl.SSLContext | None) -> None:
    """Ends a connection when one of the servers that come before its own can be reached again."""
    while True:
        await asyncio.sleep(RETURN_S)
        for server in earlier:
            if await _is_there(server, context):
                remote.close(f"{server} can be reached again")
                return


async def _is_there(server: Server, context: ssl.SSLContext | None) -> bool:
    """Whether a server accepts a connection, with its TLS."""
    try:
        async with asyncio.timeout(CONNECT_DEADLINE_S):
            transport, _ = await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, server.host, server.port, ssl=context if server.is_encrypted else None
            )
    except OSError:  # TimeoutError and the errors of TLS are of this class too
        return False
    transport.close()
    return True


def _note_connack(packet: Packet | Acknowledgements, connack: asyncio.Future[Connack]) -> None:
    if isinstance(packet, Connack) and packet.reason_code == SUCCESS:
        connack.set_result(packet)


def _failure(remote: Remote, server: Server) -> LinkDown:
    """Returns why a connection ended before its CONNACK."""
    text, closed = remote.ended.result(), remote.closed
    if closed is None:
        return Unanswered(text) if remote.has_begun else LinkDown(text)
    if closed.reason_code in (USE_ANOTHER_SERVER, SERVER_MOVED):
        return Referred(text, list(servers_referred_to(closed.server_reference, server)))
    return WrongVersion(text) if closed.reason_code == UNSUPPORTED_PROTOCOL_VERSION else LinkDown(text)
