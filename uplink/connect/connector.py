"""How a route gets a connection to its broker: to which server, and in which version of MQTT."""

import asyncio
import contextlib
import logging
import re
import sqlite3
import ssl
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from gateway.links import ANEW_PROPERTY
from host.errors import ConfigError
from host.pem import reason_of
from host.server import Server, parse_server, servers_referred_to
from uplink.config.route import RouteConfig
from uplink.config.schedule import Schedule
from uplink.connect.budget import Budget
from uplink.connect.connections import LoginRefused
from uplink.connect.credentials import Credentials
from uplink.connect.notes import RouteNotes
from uplink.connect.reading import Step
from uplink.connect.remote import MAXIMUM_PACKET_SIZE, Remote
from uplink.connect.session import RouteSession
from uplink.connect.version import SpokenVersion
from uplink.queue.route_queue import RouteQueue
from wire.bulk.connection import BulkClientConnection
from wire.codec.connect import FOR_EVER_S, Connect
from wire.codec.packets import MQTT_3_1_1, MQTT_5, Connack
from wire.identity import KEEP, RECEIVE, WISH_PROPERTY
from wire.properties import MAXIMUM_PACKET_SIZE as MAXIMUM_PACKET_SIZE_PROPERTY
from wire.properties import SESSION_EXPIRY_INTERVAL
from wire.reasons import (
    BAD_AUTHENTICATION_METHOD,
    BAD_USER_NAME_OR_PASSWORD,
    BANNED,
    CLIENT_IDENTIFIER_NOT_VALID,
    MALFORMED_PACKET,
    NOT_AUTHORIZED,
    SERVER_MOVED,
    SUCCESS,
    UNSUPPORTED_PROTOCOL_VERSION,
    USE_ANOTHER_SERVER,
)

REFUSALS = (
    CLIENT_IDENTIFIER_NOT_VALID,
    BAD_USER_NAME_OR_PASSWORD,
    NOT_AUTHORIZED,
    BANNED,
    BAD_AUTHENTICATION_METHOD,
)
"""The reason codes of a login that will be refused again."""
REFUSES_CERTIFICATE = re.compile("alert (.*certificate|unknown ca|access denied)")
"""The alerts with which the other end of TLS refuses ours [RFC 8446 section 6.2], in OpenSSL's words."""
CONNECT_DEADLINE_S = 10.0
RECEIVE_MAXIMUM = 1000  # asked for; mosquitto 2.0.11 sends more when a session with a long queue goes on
REFERENCES_MOST = 3  # that are followed, one after the other
TICK_S = 1.0  # between two looks at windows and bytes
SAVE_S = 60.0  # between two notes of the bytes of the day
CLOSE_S = 1.0  # at most, for the last note of a connection
RETURN_S = 300.0  # between two looks whether an earlier server can be reached again

logger = logging.getLogger(__name__)


class LinkDown(Exception):
    """The connection to the next broker could not be made, or is over; the text says why."""


class NotLetIn(LinkDown, LoginRefused):
    """The broker refuses our login or our certificate, or we refuse its certificate."""


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
    server: Server


class Connector:
    """Connects to the first of a route's servers that accepts it, and returns to an earlier one when it is back.

    It speaks MQTT 5. Where the server refuses that, it speaks 3.1.1, and asks for MQTT 5 again after an hour. A route
    that receives messages, which it cannot over 3.1.1, asks each time.

    A server may have kept a session from a time before the route used another one. Packet identifiers of QoS 2 that it
    holds would swallow later messages, so on another server than the last one a session begins, and the server's former
    one ends. So it does under another client identifier.

    ``session`` is to be settled over each connection before anything else is sent.

    Args:
        config: the route.
        client_id: its client identifier.
        notes: the route's note, with the last server.
        queue: what waits for the route.
        packet_size: bytes of the largest packet that a broker may send from which the route receives messages.
        link: returns the user properties with which the route asks to be the neighbour of a gateway; None at an
            ordinary broker.
    """

    def __init__(
        self,
        config: RouteConfig,
        client_id: str,
        notes: RouteNotes,
        queue: RouteQueue,
        packet_size: int = MAXIMUM_PACKET_SIZE,
        link: Callable[[], list[tuple[str, str]]] | None = None,
    ) -> None:
        self._link = link
        self._config = config
        self._client_id = client_id
        self._notes = notes
        self._queue = queue
        self._packet_size = packet_size
        self.session = RouteSession(notes, queue, client_id)
        self._is_noted = False
        self._credentials = Credentials(config)
        self._servers = [parse_server(url) for url in (config.broker, *config.fallbacks)]
        self._versions: defaultdict[Server, SpokenVersion] = defaultdict(lambda: SpokenVersion(needs_5=config.receives))
        self._last: tuple[Remote, Server] | None = None
        self._schedule = Schedule(config.windows)
        self._budget = Budget(config.bytes_per_day, waits=config.when_spent == "wait", name=config.name)
        self._keeper: asyncio.Task[None] | None = None
        self.waits_for = ""
        """Why no connection is made now; "" if one is made, or there is one."""

    async def connect(self) -> Accepted:
        """Returns a new connection, once the route may have one. Raises LinkDown, sqlite3.Error."""
        if not self._is_noted:
            await self._notes.load()
            self._is_noted = True
        await self._wait_for_leave()
        password, context = await self._read_credentials()
        reasons: list[str] = []
        refusals = 0
        for server in self._in_order():
            try:
                accepted = await self._follow(server, password, context)
            except LinkDown as error:
                refusals += isinstance(error, NotLetIn)
                reasons.append(f"{server}: {error}" if self._config.fallbacks else str(error))
            else:
                await self._take_up(accepted.server, accepted.remote)
                keeping = self._keep(accepted.server, accepted.remote, context)
                self._keeper = asyncio.get_running_loop().create_task(keeping)
                return accepted
        raise (NotLetIn if refusals == len(reasons) else LinkDown)("; ".join(reasons))

    async def close(self) -> None:
        """Returns once the last connection, which has ended, is noted."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:  # it counts the last bytes
            await asyncio.wait({keeper}, timeout=CLOSE_S)
            keeper.cancel()

    def _in_order(self) -> list[Server]:
        """Returns the servers to try: first those to which the last one has referred when it ended the connection."""
        if self._last is None or self._last[0].closed is None:
            return self._servers
        (remote, server), self._last = self._last, None
        assert remote.closed is not None
        return [*islice(servers_referred_to(remote.closed.server_reference, server), 1), *self._servers]

    async def _follow(self, server: Server, password: bytes | None, context: ssl.SSLContext | None) -> Accepted:
        """Connects to a server, or to the one to which it refers, a few times."""
        for _ in range(REFERENCES_MOST):
            try:
                return await self._connect_to(server, password, context)
            except Referred as error:
                if not error.servers:
                    raise
                server = error.servers[0]
        return await self._connect_to(server, password, context)

    async def _take_up(self, server: Server, remote: Remote) -> None:
        """Notes the server durably, before anything is sent to it. Raises sqlite3.Error."""
        note = self._notes.note
        before, now = (note.server, note.client_id), (str(server), self._client_id)
        note.server, note.client_id = now
        try:
            if now == before:
                await self._save_note()
            else:
                await self._notes.save()
        except BaseException:
            note.server, note.client_id = before
            remote.close("the route ends")
            raise
        self._last = remote, server
        if server != self._servers[0]:
            logger.warning(
                "route %s: connected to %s instead of %s", self._config.name, str(server), str(self._servers[0])
            )

    async def _keep(self, server: Server, remote: Remote, context: ssl.SSLContext | None) -> None:
        """Counts a connection's bytes, and ends it when it may not last or an earlier server can be reached again."""
        earlier = self._servers[: self._servers.index(server)] if server in self._servers else []
        loop, counted = asyncio.get_running_loop(), 0
        look_s, save_s = loop.time() + RETURN_S, loop.time() + SAVE_S
        may_last = not (earlier or self._config.windows or self._config.bytes_per_day)
        has_ended = False
        while not has_ended:
            await asyncio.wait({remote.ended}, timeout=None if may_last else TICK_S)
            has_ended, now = remote.ended.done(), datetime.now()
            self._budget.spend(self._notes.note, remote.transferred - counted, now)
            counted = remote.transferred
            if why := self._why_not(now):
                remote.close(why)
            elif earlier and loop.time() >= look_s:
                look_s = loop.time() + RETURN_S
                for one in earlier:
                    if not remote.ended.done() and await _is_there(one, context):
                        remote.close(f"{one} can be reached again")
            if loop.time() >= save_s or has_ended:
                save_s = loop.time() + SAVE_S
                await self._save_note()

    async def _save_note(self) -> None:
        try:
            await self._notes.save()
        except sqlite3.Error as error:
            logger.error("route %s: its bytes of the day cannot be saved: %s", self._config.name, error)

    async def _wait_for_leave(self) -> None:
        """Waits until the route may be connected."""
        await self.close()
        while why := self._why_not(datetime.now()):
            if why != self.waits_for:
                logger.info("route %s: %s; storing meanwhile", self._config.name, why)
            self.waits_for = why
            await asyncio.sleep(TICK_S)
        self.waits_for = ""

    def _why_not(self, now: datetime) -> str:
        """Returns why the route may not be connected, empty if it may."""
        if not self._schedule.is_open(now):
            return f"no window is open before {self._schedule.opens:%Y-%m-%d %H:%M}"
        return "" if self._budget.allows(self._notes.note, now) else "the bytes of the day are spent"

    async def _connect_to(self, server: Server, password: bytes | None, context: ssl.SSLContext | None) -> Accepted:
        version, loop = self._versions[server], asyncio.get_running_loop()
        is_refused_silently = False
        if version.tries_5(loop.time()):
            try:
                return await self._try_5(server, password, context)
            except (Unanswered, WrongVersion) as error:
                if not version.may_speak_3_1_1(says_so=isinstance(error, WrongVersion)):
                    raise
                is_refused_silently = isinstance(error, Unanswered)
        try:
            accepted = await self._try(server, MQTT_3_1_1, password, context)
        except WrongVersion:
            version.note_not_3_1_1()
            raise
        if is_refused_silently:
            # It may have been away until now, behind a load balancer that accepts connections and closes them.
            accepted.remote.close("MQTT 5 is tried once more")
            with contextlib.suppress(Unanswered, WrongVersion):
                return await self._try_5(server, password, context)
            accepted = await self._try(server, MQTT_3_1_1, password, context)
        if version.note_3_1_1(loop.time()):
            logger.warning(
                "route %s to %s: it speaks MQTT 3.1.1, so no identities go there", self._config.name, str(server)
            )
        return accepted

    async def _try_5(self, server: Server, password: bytes | None, context: ssl.SSLContext | None) -> Accepted:
        accepted = await self._try(server, MQTT_5, password, context)
        self._versions[server].note_5()
        return accepted

    async def _read_credentials(self) -> tuple[bytes | None, ssl.SSLContext | None]:
        try:
            return await asyncio.get_running_loop().run_in_executor(None, self._credentials.read)
        except ConfigError as error:
            raise LinkDown(str(error)) from error

    def _begins_clean(self, server: Server) -> bool:
        """Whether a server may hold packet identifiers of another store, or of an earlier use of it.

        So may any server if the note is lost: the route may have used another one last.
        """
        note = self._notes.note
        is_last = note.server == str(server) and note.client_id in ("", self._client_id)
        return not (self._queue.has_session and is_last)

    async def _try(
        self, server: Server, level: int, password: bytes | None, context: ssl.SSLContext | None
    ) -> Accepted:
        """Connects with a session that stays, and that has nothing from before if it is to begin.

        A server of MQTT 5 says whether it has a session. Only such a session is ended, by a clean start. The session
        that a clean start begins does not stay: over 3.1.1 it ends with its connection [3.1.2.4], and mosquitto forgets
        it by a restart, with the messages that it has queued. So the route then connects once more.
        """
        begins = self._begins_clean(server)
        if self._link is not None:  # a gateway's session goes on without packet identifiers from before
            return await self._try_once(server, level, password, context, is_clean=False, is_new=begins)
        is_clean = begins and level == MQTT_3_1_1
        accepted = await self._try_once(server, level, password, context, is_clean=is_clean)
        if begins and accepted.connack.session_present:
            accepted.remote.close("the server has a session from before")
            accepted, is_clean = await self._try_once(server, level, password, context, is_clean=True), True
        if is_clean:
            accepted.remote.close("the former session is ended")
            accepted = await self._try_once(server, level, password, context, is_clean=False, is_new=True)
        return accepted

    @property
    def _receives(self) -> bool:
        """Whether the route has subscriptions, or had some in its session."""
        return self._config.receives or bool(self._notes.note.subscribed or self._queue.link.asked.filters)

    async def _try_once(
        self,
        server: Server,
        level: int,
        password: bytes | None,
        context: ssl.SSLContext | None,
        *,
        is_clean: bool,
        is_new: bool = False,
    ) -> Accepted:
        receives = self._receives
        size = max(self._packet_size, MAXIMUM_PACKET_SIZE) if receives else MAXIMUM_PACKET_SIZE
        properties = {SESSION_EXPIRY_INTERVAL: FOR_EVER_S, MAXIMUM_PACKET_SIZE_PROPERTY: size}
        user, keep_alive_s = self._config.user, self._config.keep_alive_s
        client = BulkClientConnection(
            Connect(self._client_id, is_clean, keep_alive_s, user, password, None, properties, level),
            retry_interval_ms=1000 * self._config.retry_interval_s,
            inflight_window=self._config.inflight_window,
        )
        begun = [one for one in self._queue.outgoing.begun if one not in self._queue.unwanted]
        client.expect_pubrecs(begun)  # a broker may send them right behind its CONNACK
        connack: asyncio.Future[Connack] = asyncio.get_running_loop().create_future()

        def begin(packet: Step) -> None:
            if isinstance(packet, Connack) and packet.reason_code == SUCCESS:
                remote.reading.postpone()
                packet.session_present = packet.session_present and not is_new and not self.session.is_lost
                if packet.session_present:  # before the messages are read that come again
                    client.resume(list(self._queue.publisher.incoming))
                connack.set_result(packet)

        said = [(WISH_PROPERTY, wish) for wish in ((KEEP, RECEIVE) if receives else (KEEP,))]
        if self._link is not None:
            said += [*self._link(), *([(ANEW_PROPERTY, "1")] if is_new else ())]
        remote = Remote(client, begin, said, RECEIVE_MAXIMUM if receives else None)
        try:
            await _open(server, remote, connack, context if server.is_encrypted else None)
        except BaseException:
            remote.close("the route ends")
            self._budget.spend(self._notes.note, remote.transferred, datetime.now())
            raise
        finally:
            if remote.has_begun:
                self.session.note_connect()
        return Accepted(client, remote, connack.result(), server)


async def _open(
    server: Server, remote: Remote, connack: asyncio.Future[Connack], context: ssl.SSLContext | None
) -> None:
    line: asyncio.Protocol = remote
    if server.path:
        from uplink.connect.websocket import WebSocket  # http.client and email come with it, and few routes need them

        line = WebSocket(remote, server)
    transport: asyncio.BaseTransport | None = None
    try:
        async with asyncio.timeout(CONNECT_DEADLINE_S):
            try:
                transport = await _line_to(server, lambda: line, context)
            except BaseException:
                remote.connection_lost(None)  # the loop has closed the line, even if the broker has accepted us already
                raise
            await asyncio.wait((connack, remote.ended), return_when=asyncio.FIRST_COMPLETED)
    except TimeoutError:
        raise LinkDown(f"no answer in {CONNECT_DEADLINE_S:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise NotLetIn(f"cannot connect: its certificate is refused: {error.verify_message}") from None
    except ssl.SSLError as error:
        text = f"cannot connect: TLS failed: {reason_of(error)}"
        raise (NotLetIn if REFUSES_CERTIFICATE.search(text) else LinkDown)(text) from None
    except OSError as error:
        hint = "; the port may be one without TLS" if isinstance(error, ConnectionResetError) and context else ""
        raise LinkDown(f"cannot connect: {error.strerror or error}{hint}") from None
    finally:
        if transport is not None and not connack.done():
            transport.close()
    if not connack.done():
        raise _failure(remote, server)


async def _line_to(
    server: Server, make: Callable[[], asyncio.Protocol], context: ssl.SSLContext | None
) -> asyncio.BaseTransport:
    loop = asyncio.get_running_loop()
    if server.socket:
        transport, _ = await loop.create_unix_connection(make, server.socket)
        return transport
    transport, _ = await loop.create_connection(make, server.host, server.port, ssl=context)
    return transport


async def _is_there(server: Server, context: ssl.SSLContext | None) -> bool:
    """Whether a server accepts a connection, with its TLS."""
    try:
        async with asyncio.timeout(CONNECT_DEADLINE_S):
            transport = await _line_to(server, asyncio.Protocol, context if server.is_encrypted else None)
    except OSError:  # TimeoutError and the errors of TLS are of this class too
        return False
    transport.close()
    return True


def _failure(remote: Remote, server: Server) -> LinkDown:
    """Returns why a connection ended before its CONNACK."""
    text, closed = remote.ended.result(), remote.closed
    if closed is None and REFUSES_CERTIFICATE.search(text):
        return NotLetIn(f"no CONNACK came: {text}")
    if closed is None:
        return Unanswered(f"no CONNACK came: {text}") if remote.has_begun else LinkDown(text)
    if closed.reason_code == MALFORMED_PACKET:
        return LinkDown(f"it may be no MQTT broker: {text}")
    if closed.reason_code in REFUSALS:
        return NotLetIn(text)
    if closed.reason_code in (USE_ANOTHER_SERVER, SERVER_MOVED):
        return Referred(text, list(servers_referred_to(closed.server_reference, server)))
    return WrongVersion(text) if closed.reason_code == UNSUPPORTED_PROTOCOL_VERSION else LinkDown(text)
