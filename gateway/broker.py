"""The local broker: listeners on one side, the message log on the other, clients' sessions in between."""

import asyncio
import contextlib
import logging
import sqlite3
import time
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

from gateway.auth.admission import AccessControl
from gateway.auth.permissions import Access
from gateway.config.schema import GatewayConfig
from gateway.connection.connection import Connection
from gateway.connection.services import Services
from gateway.errors import ConfigError, ListenError
from gateway.holdings import Holdings
from gateway.limits import Limits
from gateway.listeners.listeners import Listeners
from gateway.message import message_from
from gateway.multicast import Multicast
from gateway.network import Network
from gateway.observe.links import Links
from gateway.observe.overview import Overview
from gateway.observe.sys_topics import Announcer
from gateway.pace import Paces, Shifts, TimeShares
from gateway.port import Port
from gateway.sessions.copies import LinkCopies
from gateway.sessions.devices import Devices
from gateway.sessions.publishing import Publishing
from gateway.sessions.registry import Sessions
from gateway.sessions.subscribers import Subscribers
from gateway.sessions.wills import Wills
from gateway.store import Cursor, Endings, MessageLog, StoredWill, Work
from gateway.timers import Timers
from wire import reasons

CATCH_UP_S = 2.0  # for clients that send without end, or wait for room in the store, when the broker closes

logger = logging.getLogger(__name__)


class Broker:
    """A gateway's broker.

    Args:
        config: the gateway's configuration.
        log: its message log, open; it stays open when the broker closes.

    ``services`` are its parts, which connections and routes use.

    Raises:
        ConfigError: accounts, access rules or certificates cannot be used.
    """

    def __init__(self, config: GatewayConfig, log: MessageLog) -> None:
        self.config = config
        self.log = log
        self.counters = log.counters
        self.limits = Limits(config, log, self._queues, lambda topic: self.subscribers.cursors_for(topic))
        self.endings = Endings(log)
        holdings, shifts, self._timers = Holdings(config.limits.kept_bytes), Shifts(), Timers()
        self._paces = Paces(config.limits.messages_per_s)
        self.network = Network(config.name, config.network.summary, config.neighbour)
        self._multicast = Multicast(config.multicast, log, self.network)
        self._copies = LinkCopies(log)
        self.subscribers = Subscribers(log, self.endings, shifts, self.network)
        self.publishing = Publishing(config.name, self.subscribers, log, self.limits, log.counters)
        self._wills = Wills(log, holdings, self._publish_will)
        self.sessions = Sessions(
            log,
            self.subscribers,
            self._copies,
            holdings,
            config.limits,
            self._wills.execute,
            lambda: self.limits.problem,
        )
        folder = Path(config.store.path)
        self._devices = Devices(folder)
        self._access_control = AccessControl(
            Path(config.accounts) if config.accounts else None, Path(config.acl) if config.acl else None, config.name
        )
        self._access_control.access.other_gateways = self.network.gateways
        self.services = Services(
            config=config,
            counters=log.counters,
            log=log,
            network=self.network,
            multicast=self._multicast,
            copies=self._copies,
            limits=self.limits,
            access_control=self._access_control,
            sessions=self.sessions,
            subscribers=self.subscribers,
            publishing=self.publishing,
            wills=self._wills,
            devices=self._devices,
            holdings=holdings,
            timers=self._timers,
            paces=self._paces,
            time_shares=TimeShares(),
            shifts=shifts,
        )
        self.listeners = Listeners(config, self.connect)
        self.links = Links(config.name, self.network, self.sessions, log)
        parts = self.sessions, self.publishing, self.limits, self.links, self._multicast
        self.overview = Overview(folder, log, *parts)
        self._announcer = Announcer(self.publishing, log.counters, self.overview.state)
        self._connections: dict[Connection, asyncio.Task[None]] = {}
        self._closing = False

    async def start(self) -> None:
        """Loads the sessions, then opens the listeners. After an error the broker is closed again.

        Raises:
            ListenError: a listener cannot be opened.
            StoreError: the file of the devices cannot be used.
        """
        self.endings.open()
        self.sessions.open()
        self._multicast.open()
        await self._devices.open()
        await self.limits.open()
        self._wills.open(lambda client_id: self.sessions.get(client_id) is not None)
        try:
            await self.listeners.open()
            self._announcer.open()
        except ListenError:
            await self.close()
            raise

    async def close(self) -> None:
        """Accepts no more clients and disconnects those that are connected; their sessions stay.

        What the clients have sent is stored and acknowledged before.
        """
        self._closing = True
        self._wills.close()
        with contextlib.suppress(sqlite3.Error):  # each client learns it from the failure of its own message
            await self.log.submit([])
            await self._catch_up()
            await self.log.submit([])
        for connection in list(self._connections):
            connection.disconnect(reasons.SERVER_SHUTTING_DOWN)
        await self.listeners.close()
        self._announcer.close()
        if self._connections:
            await asyncio.wait(self._connections.values())
        await self._multicast.close()
        self._timers.close()
        self.network.close()
        self._copies.close()
        await self.subscribers.close()
        await self.limits.close()
        await self.endings.close()
        await self.sessions.close()
        await self._devices.close()
        await self._access_control.close()

    async def _catch_up(self) -> None:
        """Lets the connections act on what has come: a message whose PUBACK is not read goes to its client again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                for connection in list(self._connections):
                    await connection.caught_up()

    def reload(self) -> None:
        """Reads accounts, access rules and certificates again, and disconnects the users with a changed account.

        Raises:
            ConfigError: a file cannot be used; what was read from it before still holds.
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
        access = copy(self._access_control.access)
        try:
            changed = self._access_control.reload()
        finally:
            if self._access_control.access.rules != access.rules:
                self._change_rights(access)
        self.subscribers.reconsider_rights()
        self._multicast.rotate()
        self.limits.count_again(self._queues())
        for connection in list(self._connections):
            if connection.user in changed:
                connection.disconnect(reasons.ADMINISTRATIVE_ACTION)

    def _change_rights(self, before: Access) -> None:
        """Lets each session receive what waits for it by the access rules under which that was stored."""
        for session in self.sessions.all():
            if session.cursor.unread_from < self.log.head:
                session.cursor.change_rights(before.permissions(session.user, session.client_id).may_receive)

    def connect(self, port: Port) -> None:
        """Serves a listener's new port, in a task of its own."""
        if self._closing:
            return port.close()
        self.counters.connections_opened += 1
        connection = Connection(self.services, port)
        task = self._connections[connection] = asyncio.get_running_loop().create_task(connection.serve())
        task.add_done_callback(partial(self._served, connection))
        return None

    def _served(self, connection: Connection, task: asyncio.Task[None]) -> None:
        del self._connections[connection]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s: unexpected failure, other connections go on", connection.name, exc_info=error)

    def _queues(self) -> list[Cursor]:
        return [session.cursor for session in self.sessions.all()] + self.subscribers.cursors()

    def _publish_will(self, will: StoredWill, note: Work) -> asyncio.Future[Any] | int:
        """Publishes a will in one transaction with other work; returns the reason code if it may not be published."""
        permissions = self._access_control.access.permissions(will.user, will.session)
        now_ms = int(time.time() * 1000)
        message = message_from(will.publish, will.session, self.config.name, now_ms)
        message.owner = will.owner
        reason_code, _ = self.publishing.check(message, permissions, now_ms)
        if reason_code != reasons.SUCCESS:
            self.publishing.refuse(message, permissions)
            return reason_code
        self._paces.note(will.owner, 1)
        return self.log.submit([*self.publishing.publish(message), note])
