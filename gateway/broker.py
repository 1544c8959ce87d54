"""The local broker: listeners on one side, the message log on the other, clients' sessions in between."""

import asyncio
import logging
import secrets
from pathlib import Path
from typing import Any

from gateway.config import GatewayConfig, SerialConfig, TcpConfig
from gateway.connection import Connection
from gateway.errors import ListenError
from gateway.listeners.serial import SerialListener
from gateway.listeners.tcp import TcpListener
from gateway.port import Port
from gateway.session import Session
from gateway.sessions import Sessions
from gateway.store.log import MessageLog
from gateway.subscribers import Subscribers
from wire import properties, reasons
from wire.packets import Connect

ANNOUNCED = {
    properties.MAXIMUM_QOS: 1,
    properties.RETAIN_AVAILABLE: 0,
    properties.SUBSCRIPTION_IDENTIFIERS_AVAILABLE: 0,
}
"""What this broker does not offer."""

logger = logging.getLogger(__name__)


class Broker:
    """A gateway's broker.

    Args:
        config: the gateway's configuration.
        log: its message log, open; it stays open when the broker closes.
    """

    def __init__(self, config: GatewayConfig, log: MessageLog) -> None:
        self.config = config
        self.log = log
        self.subscribers = Subscribers(log)
        self.sessions = Sessions(log, self.subscribers, Path(config.store.path))
        self.listeners = [self._listener(one) for one in config.listener]
        self._connections: dict[Connection, asyncio.Task[None]] = {}
        self._closing = False

    async def start(self) -> None:
        """Loads the sessions, then opens the listeners. After an error the broker is closed again.

        Raises:
            ListenError: a listener cannot be opened.
            StoreError: the sessions' file cannot be read.
        """
        await self.sessions.open()
        try:
            for listener in self.listeners:
                await listener.open()
        except ListenError:
            await self.close()
            raise

    async def close(self) -> None:
        """Takes no more clients, sends away those that are here, and leaves their sessions as they are."""
        self._closing = True
        for connection in list(self._connections):
            connection.disconnect(reasons.SERVER_SHUTTING_DOWN)
        for listener in self.listeners:
            await listener.close()
        if self._connections:
            await asyncio.wait(self._connections.values())
        await self.sessions.close()

    def _listener(self, config: TcpConfig | SerialConfig) -> TcpListener | SerialListener:
        if isinstance(config, TcpConfig):
            return TcpListener(config, self.connect)
        return SerialListener(config, self.connect)

    def connect(self, port: Port) -> None:
        """A listener's new port: from now on it is served."""
        if self._closing:
            return port.close()
        connection = Connection(self, port)
        task = asyncio.get_running_loop().create_task(connection.serve())
        self._connections[connection] = task
        task.add_done_callback(lambda task: self._forget(connection, task))
        return None

    def _forget(self, connection: Connection, task: asyncio.Task[None]) -> None:
        del self._connections[connection]
        if not task.cancelled() and (error := task.exception()):
            logger.error("%s: unexpected failure, others go on", connection.name, exc_info=error)

    def open_session(self, connection: Connection, packet: Connect) -> tuple[Session, bool, dict[int, Any]]:
        """Makes or resumes the session of a CONNECT; whoever had it is sent away [MQTT-3.1.4-3].

        Returns:
            The session, whether it was present, and the properties for the CONNACK.
        """
        announced: dict[int, Any] = dict(ANNOUNCED)
        client_id = packet.client_id
        if not client_id:
            client_id = announced[properties.ASSIGNED_CLIENT_IDENTIFIER] = f"hf-{secrets.token_hex(8)}"
        session = self.sessions.get(client_id)
        if session is not None and session.connection is not None:
            session.connection.disconnect(reasons.SESSION_TAKEN_OVER)
            session = self.sessions.get(client_id)
        if session is not None and packet.clean_start:
            self.sessions.end(session)
            session = None
        present = session is not None
        expiry_s = packet.properties.get(properties.SESSION_EXPIRY_INTERVAL, 0)
        if session is None:
            session = self.sessions.create(client_id, expiry_s)
        self.sessions.resume(session, connection, expiry_s)
        return session, present, announced
