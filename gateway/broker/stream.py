"""One stream of a gateway: its store, and all that serves the clients in it."""

import asyncio
import contextlib
import sqlite3
import time
from typing import Any

from gateway.auth.permissions import Access
from gateway.config.schema import GatewayConfig
from gateway.connection.services import Common, Services
from gateway.limits import Limits
from gateway.loop.timers import Timers
from gateway.message import message_from
from gateway.multicast import Multicast
from gateway.network import Network
from gateway.sessions.copies import LinkCopies
from gateway.sessions.offers import Offers
from gateway.sessions.publishing import Publishing
from gateway.sessions.registry import Sessions
from gateway.sessions.subscribers import Subscribers
from gateway.sessions.wills import Wills
from gateway.store import Cursor, Endings, MessageLog, Work, wills
from gateway.streams.names import client_of
from wire import reasons


class Stream:
    """Serves the topics of one stream. A gateway without ``[[stream]]`` has the default stream alone.

    Args:
        name: its name, "" for the default stream.
        config: the gateway's configuration, with the store and the limits of this stream.
        log: its message log, open; it stays open when the stream closes.
        common: what it shares with the other streams.
    """

    def __init__(self, name: str, config: GatewayConfig, log: MessageLog, common: Common) -> None:
        self.name = name
        self.log = log
        self._common = common
        self._gateway = config.name
        self.limits = Limits(config, log, self._queues, lambda topic: self.subscribers.cursors_for(topic))
        self.endings = Endings(log)
        self.network = Network(config.name, config.network.summary, config.neighbour)
        self.multicast = Multicast(config.multicast, log, self.network)
        self._copies = LinkCopies(log)
        self._offers = Offers(log, common.shifts, self.network)
        self.subscribers = Subscribers(log, self.endings, self._offers, self.network)
        self.publishing = Publishing(config.name, self._offers, log, self.limits, log.counters)
        self._timers = Timers()  # a crowd of sessions that expire delays no connection's
        self._wills = Wills(log, common.holdings, self._timers, self._publish_will)
        self.sessions = Sessions(
            log,
            self.subscribers,
            self._copies,
            common.holdings,
            config.limits,
            self._timers,
            self._wills.execute,
            lambda: self.limits.room.problem,
        )
        self.services = common.streams[name] = Services(
            stream=name,
            shared=common,
            config=config,
            counters=log.counters,
            log=log,
            network=self.network,
            multicast=self.multicast,
            copies=self._copies,
            limits=self.limits,
            endings=self.endings,
            sessions=self.sessions,
            subscribers=self.subscribers,
            offers=self._offers,
            publishing=self.publishing,
            wills=self._wills,
        )

    async def open(self) -> None:
        """Loads the sessions and wills."""
        self.endings.open()
        self.sessions.open()
        self.multicast.open()
        await self.limits.open()
        self._wills.open(lambda client_id: self.sessions.get(client_id) is not None)

    def close_wills(self) -> None:
        """Publishes no more wills."""
        self._wills.close()

    async def write_all(self) -> None:
        """Writes what has come. Each client learns from the failure of its own message that it is not stored."""
        with contextlib.suppress(sqlite3.Error):
            await self.log.submit([])

    async def close(self) -> None:
        """Ends; the clients have gone, and their sessions stay."""
        await self.multicast.close()
        self.network.close()
        self._copies.close()
        await self._offers.close()
        await self.limits.close()
        await self.endings.close()
        self._timers.close()
        await self.sessions.close()

    def change_rights(self, before: Access) -> None:
        """Lets each session receive what waits for it by the access rules under which that was stored."""
        for session in self.sessions.all():
            cursor = session.cursor
            if cursor.unread_from < self.log.head:
                permissions = before.permissions(session.user, client_of(session.client_id), self.name)
                cursor.rights.change(permissions.may_receive, cursor.unread_from, self.log.head)

    def reconsider_rights(self) -> None:
        """The access rules have been read again."""
        self.subscribers.reconsider_rights()
        self.multicast.rotate()
        self.limits.discarding.count_again(self._queues())

    def _queues(self) -> list[Cursor]:
        return [session.cursor for session in self.sessions.all()] + self.subscribers.cursors()

    def _publish_will(self, will: wills.StoredWill, note: Work) -> asyncio.Future[Any] | int:
        """Publishes a will in one transaction with other work; returns the reason code if it may not be published."""
        access = self._common.access_control.access
        permissions = access.permissions(will.user, client_of(will.session), self.name)
        now_ms = int(time.time() * 1000)
        message = message_from(will.publish, will.session, self._gateway, now_ms)
        message.owner = will.owner
        reason_code, _ = self.publishing.check(message, permissions, now_ms)
        if reason_code != reasons.SUCCESS:
            self.publishing.refuse(message, permissions)
            return reason_code
        self._common.paces.note(will.owner, 1)
        return self.log.submit([*self.publishing.publish(message), note])
