"""A route: a gateway sends its stored messages to the next broker, which takes over custody one by one."""

import asyncio
import logging
import sqlite3
import ssl
from typing import Any

from gateway.routes import (
    DONE,
    ROUTE_END,
    ConfigError,
    Cursor,
    MessageLog,
    Outgoing,
    RouteState,
    Sender,
    Subscription,
    reason_of,
)
from uplink.config import RouteConfig, parse_broker
from uplink.credentials import Credentials
from uplink.remote import Remote
from uplink.watch import BacklogWatch
from uplink.window import RouteWindow
from wire.backoff import Backoff
from wire.bulk.connection import Acknowledgements, BulkClientConnection
from wire.codec.packets import Connack, Packet
from wire.reasons import SUCCESS

CONNECT_DEADLINE_S = 10.0
ROUTE_PREFIX = "route/"  # of the names under which the log keeps the routes' cursors

logger = logging.getLogger(__name__)


class LinkDown(Exception):
    """The connection to the next broker could not be made, or is over; the text says why."""


class Route:
    """Takes messages from the log by a durable cursor, and moves it as the next broker acknowledges them.

    After a loss the session resumes: everything unacknowledged goes out again in order, with its first packet
    identifiers and DUP set where the broker still has the session [MQTT-4.4.0-1]. QoS 2 messages are handed over
    exactly once as long as it has.

    Args:
        config: the route.
        gateway_name: the gateway that the route belongs to.
        log: the gateway's store.

    ``state`` says how the route is doing, as far as ``watch`` runs beside it.
    """

    def __init__(self, config: RouteConfig, gateway_name: str, log: MessageLog) -> None:
        self._config = config
        self._client_id = f"{gateway_name}-{config.name}"
        self._names = (config.name, config.broker)
        self._credentials = Credentials(config)
        self.consumer = ROUTE_PREFIX + config.name
        filters = [Subscription(topic_filter, qos=2, retain_as_published=True) for topic_filter in config.filters]
        self._log = log
        self._cursor = Cursor(log, self.consumer, filters, window=config.inflight_window)
        session = self.consumer + ROUTE_END
        flows = (flow for flow in log.flows if flow.session == session and flow.state != DONE)
        self._outgoing = Outgoing(log, session, flows)
        self.state = RouteState(config.name)
        self.watch = BacklogWatch(self.state, log, self._cursor, config)
        self._backoff = Backoff(config.backoff_shortest_ms, config.backoff_longest_ms)
        self._said = ""
        self._connections = 0

    async def run(self) -> None:
        """Serves for ever: connects, forwards, and after each loss waits and connects again."""
        while True:
            try:
                await self._serve()
            except (LinkDown, sqlite3.Error) as error:
                if str(error) != self._said:
                    self._said = str(error)
                    logger.warning("route %s to %s: %s; storing meanwhile", *self._names, self._said)
            except Exception:
                logger.exception("route %s to %s: unexpected failure; storing meanwhile", *self._names)
            await asyncio.sleep(self._backoff.next_wait_ms() / 1000)

    async def _serve(self) -> None:
        """One connection, from its start to the LinkDown at its end."""
        connack: asyncio.Future[Connack] = asyncio.get_running_loop().create_future()
        password, context = await self._read_credentials()
        client = BulkClientConnection(
            self._client_id,
            clean_start=False,
            keep_alive_s=self._config.keep_alive_s,
            username=self._config.user,
            password=password,
        )
        remote = Remote(client, lambda packet: window.handle(packet) if window else _note_connack(packet, connack))
        window: RouteWindow | None = None
        sender: Sender | None = None
        try:
            await self._connect(remote, connack, context)
            present = connack.result().session_present
            self._backoff.reset()
            if not self.state.refused:  # otherwise each attempt would log two lines
                logger.info("route %s to %s: connected, session present: %s", *self._names, present)
                self._said = ""
            self._connections += 1
            self.state.connected, self.state.reconnects = True, self._connections - 1
            window = RouteWindow(
                client,
                remote,
                self._log,
                self._outgoing,
                self.consumer,
                self.state,
                session_present=present,
            )
            sender = Sender(window, self._log, self._cursor, remote.close)
            await first_of(remote.ended)
            raise LinkDown(remote.ended.result())
        finally:
            self.state.connected = False
            if sender is not None:
                sender.stop()
            remote.close("the route ends")

    async def _read_credentials(self) -> tuple[bytes | None, ssl.SSLContext | None]:
        try:
            return await asyncio.get_running_loop().run_in_executor(None, self._credentials.read)
        except ConfigError as error:
            raise LinkDown(str(error)) from error

    async def _connect(self, remote: Remote, connack: asyncio.Future[Connack], context: ssl.SSLContext | None) -> None:
        host, port, _ = parse_broker(self._config.broker)
        try:
            async with asyncio.timeout(CONNECT_DEADLINE_S):
                await asyncio.get_running_loop().create_connection(lambda: remote, host, port, ssl=context)
                await first_of(connack, remote.ended)
        except TimeoutError:
            raise LinkDown(f"no answer in {CONNECT_DEADLINE_S:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise LinkDown(f"cannot connect: its certificate is refused: {error.verify_message}") from None
        except ssl.SSLError as error:
            raise LinkDown(f"cannot connect: TLS failed: {reason_of(error)}") from None
        except OSError as error:
            raise LinkDown(f"cannot connect: {error.strerror or error}") from None
        if not connack.done():
            raise LinkDown(remote.ended.result())


def _note_connack(packet: Packet | Acknowledgements, connack: asyncio.Future[Connack]) -> None:
    if isinstance(packet, Connack) and packet.reason_code == SUCCESS:
        connack.set_result(packet)


async def first_of(*futures: asyncio.Future[Any]) -> None:
    """Waits until one of them is done."""
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
