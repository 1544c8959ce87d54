"""All routes of a gateway, and what is kept for routes that are no longer configured."""

import asyncio
import logging
import sqlite3

from gateway.routes import Endings, MessageLog, RouteState
from uplink.config import RouteConfig
from uplink.queue import ROUTE_PREFIX, RefusedMessage, RouteQueue, RouteStatus
from uplink.route import Route

logger = logging.getLogger(__name__)


class NoSuchRoute(Exception):
    """There is no such route, or it is in use; the text says so."""


class Routes:
    """Runs the configured routes, and carries out what an operator asks for.

    Args:
        configs: the configured routes.
        gateway_name: the gateway's name.
        log: the gateway's store. The routes' places in it are there before the first message can be.
        endings: told of a queue that ends.
    """

    def __init__(self, configs: list[RouteConfig], gateway_name: str, log: MessageLog, endings: Endings) -> None:
        self._log = log
        self._endings = endings
        self._serving = {config.name: Route(config, gateway_name, log) for config in configs}
        consumers = [consumer for consumer in log.consumers() if consumer.startswith(ROUTE_PREFIX)]
        names = {consumer.removeprefix(ROUTE_PREFIX) for consumer in consumers} - self._serving.keys()
        self._left = {name: RouteQueue(name, log) for name in sorted(names)}

    @property
    def states(self) -> list[RouteState]:
        """The states of the configured routes, which they keep up to date."""
        return [route.queue.state for route in self._serving.values()]

    async def run(self) -> None:
        """Runs for ever."""
        async with asyncio.TaskGroup() as group:
            for route in self._serving.values():
                group.create_task(route.run())
            for queue in self._queues().values():
                group.create_task(queue.watch.run())
            group.create_task(self._name_left())

    async def _name_left(self) -> None:
        """Logs what is kept for routes that are no longer configured."""
        for queue in list(self._left.values()):
            try:
                await queue.watch.count()
            except sqlite3.Error as error:
                logger.warning(
                    "route %s is no longer configured, and its messages cannot be read: %s", queue.name, error
                )
                continue
            logger.warning(
                "route %s is no longer configured: %d messages (%d bytes) are kept for it until it is again, "
                "or until `holdfast uplink forget`",
                queue.name,
                queue.state.backlog_messages,
                queue.state.backlog_bytes,
            )

    def status(self) -> list[RouteStatus]:
        """Returns how all routes are doing, those that are no longer configured last."""
        configured = [route.queue.status(route.problem) for route in self._serving.values()]
        return configured + [queue.status("it is no longer configured") for queue in self._left.values()]

    async def refused(self, name: str = "") -> list[RefusedMessage]:
        """Returns the messages that a route, or each of them, has set aside. Raises NoSuchRoute, sqlite3.Error."""
        queues = [self._queue(name)] if name else self._queues().values()
        return [message for queue in queues for message in await queue.refused()]

    def resend(self, name: str) -> int:
        """Sends the messages again that a route has set aside; returns how many. Raises NoSuchRoute."""
        if name in self._left:
            raise NoSuchRoute(f"route {name!r} is no longer configured")
        return self._queue(name).refusals.send_again()

    async def discard(self, name: str) -> int:
        """Drops the messages that a route has set aside; returns how many. Raises NoSuchRoute, sqlite3.Error."""
        return await self._queue(name).discard_refused()

    async def forget(self, name: str) -> int:
        """Gives up what is kept for a route that is no longer configured; returns how many messages waited.

        Raises NoSuchRoute, sqlite3.Error.
        """
        if name in self._serving:
            raise NoSuchRoute(f"route {name!r} is configured: remove its [[route]] table and restart the gateway first")
        queue = self._queue(name)
        await queue.watch.count()
        del self._left[name]
        await queue.forget(self._endings)
        logger.info("route %s is forgotten: %d messages waited for it", name, queue.state.backlog_messages)
        return queue.state.backlog_messages

    def _queues(self) -> dict[str, RouteQueue]:
        return {name: route.queue for name, route in self._serving.items()} | self._left

    def _queue(self, name: str) -> RouteQueue:
        queues = self._queues()
        if name not in queues:
            names = ", ".join(map(repr, queues)) or "there are none"
            raise NoSuchRoute(f"no route {name!r}; the routes: {names}")
        return queues[name]
