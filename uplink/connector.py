"""How a route gets a connection to its broker, and in which version of MQTT."""

import asyncio
import logging
import ssl
from typing import NamedTuple

from gateway.routes import ConfigError, reason_of
from uplink.config import RouteConfig
from uplink.credentials import Credentials
from uplink.remote import MAXIMUM_PACKET_SIZE, Remote
from uplink.server import parse_server
from uplink.websocket import WebSocket
from wire.bulk.connection import Acknowledgements, BulkClientConnection
from wire.codec.packets import MQTT_3_1_1, MQTT_5, Connack, Packet
from wire.reasons import SUCCESS, UNSUPPORTED_PROTOCOL_VERSION

CONNECT_DEADLINE_S = 10.0
MQTT_5_AGAIN_S = 3600.0  # after it a broker that spoke MQTT 3.1.1 is asked for MQTT 5 again
UNANSWERED_MOST = 2  # CONNECTs of MQTT 5 in a row that a broker closes on, until 3.1.1 is tried

logger = logging.getLogger(__name__)


class LinkDown(Exception):
    """The connection to the next broker could not be made, or is over; the text says why."""


class Unanswered(LinkDown):
    """The broker closed the connection instead of an answer to our CONNECT."""


class WrongVersion(LinkDown):
    """The broker does not speak the version of our CONNECT."""


class Accepted(NamedTuple):
    """A connection that the broker has accepted."""

    client: BulkClientConnection
    remote: Remote
    connack: Connack


class Connector:
    """Connects to a route's broker.

    It speaks MQTT 5. Where the broker refuses that, it speaks 3.1.1, and asks for MQTT 5 again after an hour.

    Args:
        config: the route.
        client_id: its client identifier.
    """

    def __init__(self, config: RouteConfig, client_id: str) -> None:
        self._config = config
        self._client_id = client_id
        self._credentials = Credentials(config)
        self._level = MQTT_5
        self._again_s = 0.0  # when MQTT 5 is tried again, by the time of the loop
        self._has_spoken_5 = False
        self._unanswered = 0  # CONNECTs of MQTT 5 in a row

    async def connect(self) -> Accepted:
        """Returns a new connection. Raises LinkDown."""
        password, context = await self._read_credentials()
        if self._level == MQTT_5 or asyncio.get_running_loop().time() >= self._again_s:
            try:
                accepted = await self._try(MQTT_5, password, context)
            except (Unanswered, WrongVersion) as error:
                if not self._may_be_of_3_1_1(error):
                    raise
            else:
                self._level, self._has_spoken_5, self._unanswered = MQTT_5, True, 0
                return accepted
        try:
            accepted = await self._try(MQTT_3_1_1, password, context)
        except WrongVersion:
            self._level = MQTT_5
            raise
        self._note_3_1_1()
        return accepted

    def _may_be_of_3_1_1(self, error: Unanswered | WrongVersion) -> bool:
        """Whether a failed CONNECT of MQTT 5 looks like a broker of MQTT 3.1.1.

        Such a broker may just close the connection. So may one that fails for a moment; if it has spoken MQTT 5 before,
        it is not asked for less.
        """
        self._unanswered += 1
        return isinstance(error, WrongVersion) or (self._unanswered >= UNANSWERED_MOST and not self._has_spoken_5)

    def _note_3_1_1(self) -> None:
        if self._level == MQTT_5:
            names = self._config.name, self._config.broker
            logger.warning("route %s to %s: it speaks MQTT 3.1.1, so no identities go there", *names)
        now_s = asyncio.get_running_loop().time()
        if self._level == MQTT_5 or now_s >= self._again_s:
            self._again_s = now_s + MQTT_5_AGAIN_S
        self._level = MQTT_3_1_1

    async def _read_credentials(self) -> tuple[bytes | None, ssl.SSLContext | None]:
        try:
            return await asyncio.get_running_loop().run_in_executor(None, self._credentials.read)
        except ConfigError as error:
            raise LinkDown(str(error)) from error

    async def _try(self, level: int, password: bytes | None, context: ssl.SSLContext | None) -> Accepted:
        client = BulkClientConnection(
            self._client_id,
            protocol_level=level,
            clean_start=False,
            keep_alive_s=self._config.keep_alive_s,
            maximum_packet_size=MAXIMUM_PACKET_SIZE,
            username=self._config.user,
            password=password,
            retry_interval_ms=0,
        )
        connack: asyncio.Future[Connack] = asyncio.get_running_loop().create_future()
        remote = Remote(client, lambda packet: _note_connack(packet, connack))
        try:
            await self._open(remote, connack, context)
        except BaseException:
            remote.close("the route ends")
            raise
        return Accepted(client, remote, connack.result())

    async def _open(self, remote: Remote, connack: asyncio.Future[Connack], context: ssl.SSLContext | None) -> None:
        server = parse_server(self._config.broker)
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
            raise _failure(remote)


def _note_connack(packet: Packet | Acknowledgements, connack: asyncio.Future[Connack]) -> None:
    if isinstance(packet, Connack) and packet.reason_code == SUCCESS:
        connack.set_result(packet)


def _failure(remote: Remote) -> LinkDown:
    """Returns why a connection ended before its CONNACK."""
    text = remote.ended.result()
    if remote.closed is None:
        return Unanswered(text) if remote.has_begun else LinkDown(text)
    return WrongVersion(text) if remote.closed.reason_code == UNSUPPORTED_PROTOCOL_VERSION else LinkDown(text)
