"""A route: a gateway sends its stored messages to the next broker, which takes over custody one by one."""

import asyncio
import logging
import sqlite3
import ssl
from typing import Any

from gateway.routes import (
    ConfigError,
    MessageLog,
    Sender,
    reason_of,
)
from uplink.answers import Answers
from uplink.config import RouteConfig, parse_broker
from uplink.credentials import Credentials
from uplink.queue import RouteQueue
from uplink.remote import MAXIMUM_PACKET_SIZE, Remote
from uplink.resend import Resend
from uplink.window import RouteWindow
from wire.backoff import Backoff
from wire.bulk.connection import Acknowledgements, BulkClientConnection
from wire.codec.packets import Connack, Packet
from wire.errors import WireError
from wire.reasons import SUCCESS

CONNECT_DEADLINE_S = 10.0

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

    ``queue`` is what waits for the route; its state is up to date as far as its watch runs beside the route.
    """

    def __init__(self, config: RouteConfig, gateway_name: str, log: MessageLog) -> None:
        self._config = config
        self._client_id = f"{gateway_name}-{config.name}"
        self._names = (config.name, config.broker)
        self._credentials = Credentials(config)
        self.queue = RouteQueue(config.name, log, config)
        self._log = log
        self._backoff = Backoff(config.backoff_shortest_ms, config.backoff_longest_ms)
        self._said = ""
        self._connections = 0

    @property
    def problem(self) -> str:
        """Why the newest connection failed or ended; "" since the next one."""
        return self._said

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
            clean_start=not self._log.routes.has_session(self.queue.consumer),
            keep_alive_s=self._config.keep_alive_s,
            maximum_packet_size=MAXIMUM_PACKET_SIZE,
            username=self._config.user,
            password=password,
            retry_interval_ms=1000 * self._config.retry_interval_s,
        )
        remote = Remote(client, lambda packet: answers.handle(packet) if answers else _note_connack(packet, connack))
        answers: Answers | None = None
        try:
            await self._connect(remote, connack, context)
            await self._check_accepted(client, connack.result())
            present = connack.result().session_present
            window = RouteWindow(client, remote, self._log, self.queue, session_present=present)
            sender = Sender(window, self._log, self.queue.cursor, remote.close)
            needs_subscriber = self._config.needs_subscriber
            answers = Answers(
                window, sender, remote, self._log, self.queue, self._backoff, needs_subscriber=needs_subscriber
            )
            try:
                await self._resend_until(remote.ended, Resend(window, self._log, self.queue))
            finally:
                answers.stop()
                sender.stop()
        finally:
            self.queue.state.connected = False
            remote.close("the route ends")
        raise LinkDown(remote.ended.result())

    async def _check_accepted(self, client: BulkClientConnection, connack: Connack) -> None:
        """Notes that the broker has accepted the connection. Raises LinkDown if it may not have custody."""
        state = self.queue.state
        if not client.maximum_qos_peer:
            state.stands = "the broker takes only messages of QoS 0, so it acknowledges none"
            raise LinkDown(state.stands)
        if not self._log.routes.has_session(self.queue.consumer):
            await self._log.routes.begin_session(self.queue.consumer)
        present = connack.session_present
        if not state.stands:  # otherwise each attempt would log two lines
            logger.info("route %s to %s: connected, session present: %s", *self._names, present)
            self._said = ""
        self._connections += 1
        state.connected, state.reconnects = True, self._connections - 1

    async def _resend_until(self, ended: asyncio.Future[str], resend: Resend) -> None:
        """Sends refused messages again as an operator asks for it, until the connection has ended."""
        resending = asyncio.get_running_loop().create_task(resend.run())
        try:
            await first_of(ended, resending)
            if not ended.done():
                resending.result()
        except (OSError, WireError) as error:
            raise LinkDown(str(error)) from error
        finally:
            resending.cancel()

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
