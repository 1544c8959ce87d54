"""A route to a foreign system: it exports what the gateway has stored, and imports what the other system has."""

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Coroutine
from typing import Any

from gateway.routes import Services
from gateway.store import MessageLog, drops
from host.errors import ConfigError
from uplink.connect.connections import Connections, end_if_cancelled, wait_until
from uplink.connect.credentials import Credentials
from uplink.foreign.config import ForeignConfig, ImportingConfig
from uplink.foreign.delivery import Export
from uplink.foreign.imports import Import
from uplink.foreign.kinds import form_for, transport_for
from uplink.foreign.transport import Transport, TransportDown
from uplink.proxy.dialling import DiallingEnd
from uplink.queue.route_queue import RouteQueue
from uplink.refusals import TooManyRefused
from wire.backoff import Backoff

TELL_S = 0.2

logger = logging.getLogger(__name__)


class ForeignRoute:
    """Takes messages from the log by a durable cursor, as each route does, and moves it as the other system answers.

    Args:
        config: the route.
        gateway_name: the gateway that the route belongs to.
        log: the gateway's store.
        queue: what the store has for the route, if that is known.
        services: the gateway's parts, without which the route imports nothing.
    """

    link: DiallingEnd | None = None

    def __init__(
        self,
        config: ForeignConfig,
        gateway_name: str,
        log: MessageLog,
        queue: RouteQueue | None = None,
        services: Services | None = None,
    ) -> None:
        self.config = config
        is_new = queue is None
        self.queue = queue or RouteQueue(config.name, log, gateway_name, config.queue_settings(gateway_name))
        self._drop_up_to = log.head if is_new and config.start == "anew" else 0
        self._gateway_name = gateway_name
        self._log = log
        self._services = services
        self._form = form_for(config, gateway_name)
        self._credentials = Credentials(config)
        self._backoff = Backoff(config.backoff_shortest_ms, config.backoff_longest_ms)
        losses = (TransportDown, ConfigError, TooManyRefused, sqlite3.Error)
        self._connections = Connections(config.name, self.queue.state, self._backoff, *losses)

    @property
    def problem(self) -> str:
        """Why the newest connection failed or ended; "" since the next one."""
        return self._connections.problem

    @property
    def waits_for(self) -> str:
        """Why no connection may be made now: a route to another system may always connect."""
        return ""

    async def run(self) -> None:
        """Serves for ever: connects, exports and imports, and after each loss waits and connects again."""
        await self._connections.serve(self._serve)

    async def _serve(self) -> None:
        """One connection, from its start to the TransportDown at its end."""
        queue, state = self.queue, self.queue.state
        await self._begin_anew()
        transport = transport_for(self.config, self._gateway_name, self._credentials.read(), self._form)
        try:
            await transport.connect()
            end_if_cancelled()
            queue.begin_link(None)
            await queue.lanes.begin(None)
            export = Export(self.config, queue, self._log, transport, self._form, self._backoff)
            self._connections.note_connected(transport.server)
            if not state.stands:
                logger.info("route %s to %s: connected", self.config.name, transport.server)
            self._connections.problem = ""
            works = [export.run(), export.resend(), self._tell(transport)]
            imports = self._imports(transport)
            if queue.keeping is not None:
                works.append(export.send_passed_over(queue.keeping))
            if imports is not None:
                works.append(transport.receive(imports))
            try:
                await _work_until(transport.ended, works)
            finally:
                export.stop()
                if imports is not None:
                    await imports.stop()
        finally:
            state.connected, state.server, state.receive_problem = False, "", ""
            queue.link.end()
            await transport.close()
        raise TransportDown(transport.ended.result())

    async def _begin_anew(self) -> None:
        """Drops what waited at the start, if that is configured. Raises sqlite3.Error."""
        last, self._drop_up_to = self._drop_up_to, 0
        if last:
            for cursor in self.queue.lanes.cursors:
                await cursor.discard_oldest(
                    lambda _: True, lambda message: drops.UNROUTED if message.position <= last else None
                )

    def _imports(self, transport: Transport) -> Import | None:
        """Returns what takes the other system's messages, None if none are to come."""
        if self._services is None or not isinstance(self.config, ImportingConfig) or not self.config.wanted:
            return None

        def fail(why: str) -> None:
            if not transport.ended.done():
                transport.ended.set_result(why)

        return Import(self.config, self.queue, self._services, fail)

    async def _tell(self, transport: Transport) -> None:
        """Keeps up to date what is wrong with the connection, for ever."""
        state = self.queue.state
        while True:
            if transport.problem != state.receive_problem:
                state.receive_problem = transport.problem
                if transport.problem:
                    state.note_error(transport.problem)
                    logger.warning("route %s: %s", self.config.name, transport.problem)
            await asyncio.sleep(TELL_S)


async def _work_until(ended: asyncio.Future[str], works: list[Coroutine[Any, Any, None]]) -> None:
    """Works until the connection has ended, or a work has. Raises what the work raises."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await wait_until(ended, tasks)
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await task
