"""The local broker: listeners on one side, the message log on the other, clients' sessions in between."""

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

from gateway.access import Access
from gateway.announcer import Announcer
from gateway.config import GatewayConfig
from gateway.connection import Connection
from gateway.devices import Devices
from gateway.doorkeeper import Doorkeeper
from gateway.endings import Endings
from gateway.errors import ConfigError, ListenError
from gateway.holdings import Holdings
from gateway.limits import Limits
from gateway.listeners.listeners import Listeners
from gateway.message import message_from
from gateway.overview import Overview
from gateway.pace import Lanes, Paces, Shifts
from gateway.port import Port
from gateway.publishing import Publishing
from gateway.session import Session
from gateway.sessions import Sessions
from gateway.store.cursor import Cursor
from gateway.store.database import Work
from gateway.store.drops import GATEWAY, REJECTED
from gateway.store.log import MessageLog
from gateway.store.wills import StoredWill
from gateway.subscribers import Subscribers
from gateway.timers import Timers
from gateway.wills import Wills
from wire import reasons

logger = logging.getLogger(__name__)


class Broker:
    """A gateway's broker.

    Args:
        config: the gateway's configuration.
        log: its message log, open; it stays open when the broker closes.

    Raises:
        ConfigError: accounts, access rules or certificates cannot be used.
    """

    def __init__(self, config: GatewayConfig, log: MessageLog) -> None:
        self.config = config
        self.log = log
        self.counters = log.counters
        self.limits = Limits(config, log, self._queues, self._queues_for)
        self._endings = Endings(log)
        self.holdings = Holdings(config.limits.kept_bytes)
        self.shifts = Shifts()
        self.subscribers = Subscribers(log, self._endings, self.shifts)
        self.publishing = Publishing(self.subscribers, log, self.limits)
        self.paces = Paces(config.limits.messages_per_s)
        self.lanes = Lanes()
        self.timers = Timers()
        self.wills = Wills(log, self.holdings, self._publish_will)
        self.sessions = Sessions(
            log, self.subscribers, self.holdings, config.limits, self._session_ended, lambda: self.limits.problem
        )
        self.devices = Devices(Path(config.store.path))
        self.doorkeeper = Doorkeeper(
            Path(config.accounts) if config.accounts else None, Path(config.acl) if config.acl else None, config.name
        )
        self.listeners = Listeners(config, self.connect)
        self.overview = Overview(self)
        self._announcer = Announcer(self.publishing, self.counters, self.overview.state)
        self._connections: dict[Connection, asyncio.Task[None]] = {}
        self._closing = False

    async def start(self) -> None:
        """Loads the sessions, then opens the listeners. After an error the broker is closed again.

        Raises:
            ListenError: a listener cannot be opened.
            StoreError: the file of the devices cannot be used.
        """
        self._endings.open()
        self.sessions.open()
        await self.devices.open()
        await self.limits.open()
        self.wills.open(lambda client_id: self.sessions.get(client_id) is not None)
        try:
            await self.listeners.open()
            self._announcer.open()
        except ListenError:
            await self.close()
            raise

    async def close(self) -> None:
        """Takes no more clients, sends away those that are here, and leaves their sessions as they are.

        What has come from them is stored and acknowledged before.
        """
        self._closing = True
        with contextlib.suppress(sqlite3.Error):  # each client has been told by its own message's failure
            await self.log.submit([])
        for connection in list(self._connections):
            connection.disconnect(reasons.SERVER_SHUTTING_DOWN)
        await self.listeners.close()
        self._announcer.close()
        if self._connections:
            await asyncio.wait(self._connections.values())
        self.timers.close()
        await self.subscribers.close()
        self.wills.close()
        await self.limits.close()
        await self._endings.close()
        await self.sessions.close()
        await self.devices.close()
        await self.doorkeeper.close()

    def reload(self) -> None:
        """Reads accounts, access rules and certificates again; whose account is gone or another has to log in again.

        Raises:
            ConfigError: a file cannot be used; what was read from it before stays.
        """
        errors = []
        for reload in (self._reload_accounts, self.listeners.reload):
            try:
                reload()
            except ConfigError as error:
                errors.append(str(error))
        if errors:
            raise ConfigError("; ".join(errors))

    def _reload_accounts(self) -> None:
        access = copy(self.doorkeeper.access)
        try:
            changed = self.doorkeeper.reload()
        finally:
            if self.doorkeeper.access.rules != access.rules:
                self._change_rights(access)
        self.subscribers.reconsider_rights()
        self.limits.count_again(self._queues())
        for connection in list(self._connections):
            if connection.user in changed:
                connection.disconnect(reasons.ADMINISTRATIVE_ACTION)

    def _change_rights(self, before: Access) -> None:
        """What waits for sessions was stored by the access rules of before."""
        for session in self.sessions.all():
            if session.cursor.unread_from < self.log.head:
                session.cursor.change_rights(before.permissions(session.user, session.client_id).may_receive)

    def connect(self, port: Port) -> None:
        """A listener's new port: from now on it is served."""
        if self._closing:
            return port.close()
        self.counters.connections_opened += 1
        connection = Connection(self, port)
        self._connections[connection] = asyncio.get_running_loop().create_task(self._serve(connection))
        return None

    async def _serve(self, connection: Connection) -> None:
        try:
            await connection.serve()
        except Exception:
            logger.exception("%s: unexpected failure, others go on", connection.name)
        finally:
            del self._connections[connection]

    def _queues(self) -> list[Cursor]:
        return [session.cursor for session in self.sessions.all()] + self.subscribers.cursors()

    def _queues_for(self, topic: str) -> Iterator[Cursor]:
        return self.subscribers.cursors_for(topic)

    def leave(self, session: Session, *, was_accepted: bool, is_new: bool) -> None:
        """A session's connection has ended. A session that was made by a CONNECT without a CONNACK ends with it."""
        if was_accepted:
            self.devices.note_disconnected(session.client_id)
        if was_accepted or not is_new:
            self.sessions.rest(session)
        else:
            self.sessions.end(session)
        if not self._closing:
            self.wills.leave(session.client_id)

    def _session_ended(self, client_id: str) -> None:
        if not self._closing:
            self.wills.execute(client_id)

    def _publish_will(self, will: StoredWill, note: Work) -> asyncio.Future[Any] | None:
        """Publishes a will, if its client's user may still do so, in one transaction with a note."""
        permissions = self.doorkeeper.access.permissions(will.user, will.session)
        now_ms = int(time.time() * 1000)
        message = message_from(will.publish, will.session, self.config.name, now_ms)
        message.owner = will.owner
        may_bring = permissions.may_bring(message)
        if not may_bring:
            message.renew(self.config.name, now_ms)
        if not permissions.may_send(message) or self.publishing.is_own(message.topic):
            self.log.drop(REJECTED, GATEWAY, message)
            return None
        self.counters.identities_replaced += not may_bring
        self.paces.note(will.owner, 1)
        return self.log.submit([*self.publishing.publish(message), note])
