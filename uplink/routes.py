"""All routes of a gateway, and what is kept for routes that are no longer configured."""

import asyncio
import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.routes import RouteAbout, RouteState, Services, Signal
from gateway.store import Endings, MessageLog
from host.pem import Validity
from uplink.carry import export_backlog
from uplink.config.queue import NOT_CONFIGURED
from uplink.config.route import RouteConfig
from uplink.connect.credentials import validities_of
from uplink.foreign.route import ForeignRoute
from uplink.proxy.dialling import DiallingEnd
from uplink.queue.route_queue import ROUTE_PREFIX, RouteQueue
from uplink.queue.status import RouteStatus
from uplink.reading import AnyRoute, with_streams
from uplink.refusals import RefusedMessage
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
        endings: told of a queue that ends, and of messages that no filter of their route takes any more.
        services: the gateway's parts, if routes may receive messages, or be in other streams than the default one.

    ``states`` has the states of the configured routes, which they keep up to date.
    """

    def __init__(
        self,
        configs: Sequence[AnyRoute],
        gateway_name: str,
        log: MessageLog,
        endings: Endings,
        services: Services | None = None,
    ) -> None:
        self._gateway_name = gateway_name
        self._places = {"": _Place(log, endings, services)}
        if services is not None:
            others = {name: one for name, one in services.shared.streams.items() if one is not services}
            self._places |= {name: _Place(one.log, one.endings, one) for name, one in others.items()}
        self._configured, configs = configs, self._in_all_streams(configs)
        self._stream_of = {config.name: _stream(config) for config in configs}
        self._wanted = configs
        self._is_changed = Signal()
        self._changing = asyncio.Lock()
        self._group: asyncio.TaskGroup | None = None
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._serving = {config.name: self._route(config) for config in configs}
        for route in self._serving.values():
            route.queue.change_filters(route.config.sent, self._place_of(route.config.name).endings)
        self._left: dict[str, RouteQueue] = {}
        for stream in self._places:
            self._find_left(stream)
        self.states: list[RouteState] = []
        self._note_states()

    def _find_left(self, stream: str) -> None:
        """Takes up what a stream's store has of routes that are no longer configured, or are in another stream now."""
        place = self._places[stream]
        known = [*place.log.consumers.names(), *place.log.routes.names()]
        names = {consumer.removeprefix(ROUTE_PREFIX) for consumer in known if consumer.startswith(ROUTE_PREFIX)}
        serving = {name for name in self._serving if self._stream_of[name] == stream}
        for name in sorted(names - serving):
            network = None if place.services is None else place.services.network
            self._leave(name, stream, RouteQueue(name, place.log, self._gateway_name, network=network))

    def _leave(self, name: str, stream: str, queue: RouteQueue) -> str:
        """Keeps the queue of a route that is no longer in a stream; returns its name among the others."""
        is_taken = name in self._serving or name in self._left
        name = f"{name} of stream {stream or 'default'}" if is_taken else name
        self._left[name], self._stream_of[name] = queue, stream
        return name

    def _place_of(self, name: str) -> "_Place":
        return self._places[self._stream_of[name]]

    async def run(self) -> None:
        """Runs for ever."""
        try:
            async with asyncio.TaskGroup() as self._group:
                for name in self._queues():
                    self._start(name)
                self._group.create_task(self._name_left(list(self._left.values())))
                while True:
                    await self._is_changed.wait()
                    self._is_changed.clear()
                    async with self._changing:
                        await self._change_to({config.name: config for config in self._wanted})
        finally:
            self._group = None

    def reload(self, configs: Sequence[AnyRoute]) -> None:
        """Makes these the configured routes, soon.

        New routes begin. Removed ones stop, and what waits for them is kept. Changed ones connect again, and go on at
        their places. The others stay connected.
        """
        self._configured, self._wanted = configs, self._in_all_streams(configs)
        self._is_changed.set()

    def take_stream(self, services: Services) -> None:
        """The gateway has one more stream: links carry it from now on."""
        self._places[services.stream] = _Place(services.log, services.endings, services)
        self._find_left(services.stream)
        self.reload(self._configured)

    def _in_all_streams(self, configs: Sequence[AnyRoute]) -> list[AnyRoute]:
        """Returns the routes, with a link for each stream that is carried; some streams may begin at the next start."""
        found = []
        for config in with_streams(configs, [stream for stream in self._places if stream]):
            if _stream(config) in self._places:
                found.append(config)
            else:
                logger.warning(
                    "route %s: it begins with the next start, as stream %s does", config.name, _stream(config)
                )
        return found

    async def _change_to(self, wanted: dict[str, AnyRoute]) -> None:
        before = {name: route.config for name, route in self._serving.items()}
        changed = [name for name in before | wanted if wanted.get(name) != before.get(name)]
        await self._stop(changed)
        queues, left = self._queues(), []
        for name in changed:
            self._serving.pop(name, None)
            self._left.pop(name, None)
            queue, config = queues.get(name), wanted.get(name)
            if config is not None and _stream(config) != self._stream_of.setdefault(name, _stream(config)):
                if queue is not None:
                    queue.change(NOT_CONFIGURED, self._place_of(name).endings)
                    self._start(self._leave(f"{name} before", self._stream_of[name], queue))
                queue, self._stream_of[name] = None, _stream(config)
            if queue is not None:
                place = self._place_of(name)
                settings = NOT_CONFIGURED if config is None else config.queue_settings(self._gateway_name)
                queue.change(settings, place.endings)
                if place.services and _has_neighbour(before.get(name)) and not _has_neighbour(config):
                    place.services.copies.of(queue.publisher.client_id).clear()
            if config is not None:
                self._serving[name] = self._route(config, queue)
                what = "its settings have changed, it goes on at its place" if name in before else "it begins"
                logger.info("route %s: %s", name, what)
            elif queue is not None:
                self._left[name] = queue
                left.append(queue)
            self._start(name)
        self._serving = {name: self._serving[name] for name in wanted}
        self._note_states()
        await self._name_left(left)

    def _route(self, config: AnyRoute, queue: RouteQueue | None = None) -> Route | ForeignRoute:
        route: Route | ForeignRoute
        place = self._place_of(config.name)
        if isinstance(config, RouteConfig):
            route = Route(config, self._gateway_name, place.log, queue, place.services)
        else:
            route = ForeignRoute(config, self._gateway_name, place.log, queue, place.services)
        route.queue.endings = place.endings
        return route

    def _start(self, name: str) -> None:
        if self._group is None:  # the gateway ends
            return
        queue = self._queues()[name]
        runs = [queue.watch.run()]
        if queue.keeping is not None:
            runs.append(queue.keeping.run())
        if route := self._serving.get(name):
            runs.append(route.run())
        self._tasks[name] = [self._group.create_task(run) for run in runs]

    async def _stop(self, names: list[str]) -> None:
        """Returns once routes do nothing any more: what is not acknowledged is in their queues again, or in flows."""
        tasks = [task for name in names for task in self._tasks.pop(name, ())]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        queues = self._queues()
        await asyncio.gather(*(queues[name].outgoing.settle() for name in names if name in queues))

    def _note_states(self) -> None:
        self.states[:] = [route.queue.state for route in self._serving.values()]

    async def _name_left(self, queues: list[RouteQueue]) -> None:
        """Logs what is kept for routes that are no longer configured."""
        for queue in queues:
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
        """Returns how all routes are doing; routes that are no longer configured come last."""
        configured = [route.queue.status(route.problem) for route in self._serving.values()]
        return configured + [queue.status("it is no longer configured") for queue in self._left.values()]

    def described(self) -> dict[str, RouteAbout]:
        """Returns what each route is about, by its name."""
        found = {name: _about(route) for name, route in self._serving.items()}
        return found | {name: RouteAbout("", "it is no longer configured", "") for name in self._left}

    async def refused(self, name: str = "") -> list[RefusedMessage]:
        """Returns the messages that a route, or each of them, has set aside. Raises NoSuchRoute, sqlite3.Error."""
        queues = [self._queue(name)] if name else self._queues().values()
        return [message for queue in queues for message in await queue.refusals.messages()]

    def resend(self, name: str) -> int:
        """Sends the messages again that a route has set aside; returns how many. Raises NoSuchRoute."""
        if name in self._left:
            raise NoSuchRoute(f"route {name!r} is no longer configured")
        return self._queue(name).refusals.send_again()

    async def discard(self, name: str) -> int:
        """Drops the messages that a route has set aside; returns how many. Raises NoSuchRoute, sqlite3.Error."""
        return await self._queue(name).refusals.discard()

    async def export(self, name: str, path: Path) -> int:
        """Writes what waits for a route to a file, and then no longer keeps it; returns how many messages.

        The route has no connection meanwhile. Raises NoSuchRoute, ExportFailed, sqlite3.Error.
        """
        async with self._changing:
            queue = self._queue(name)
            await self._stop([name])
            try:
                messages = await export_backlog(queue, self._place_of(name).log, self._gateway_name, path)
            finally:
                self._start(name)
        logger.info("route %s: %d messages are in %s, and no longer wait here", name, messages, path)
        return messages

    async def forget(self, name: str) -> int:
        """Gives up what is kept for a route that is no longer configured; returns how many messages waited.

        Raises NoSuchRoute, sqlite3.Error.
        """
        async with self._changing:
            if name in self._serving:
                raise NoSuchRoute(f"route {name!r} is configured: remove its [[route]] table and send SIGHUP first")
            queue = self._queue(name)
            await queue.watch.count()
            await self._stop([name])
            del self._left[name]
            await queue.forget(self._place_of(name).endings)
        logger.info("route %s is forgotten: %d messages waited for it", name, queue.state.backlog_messages)
        return queue.state.backlog_messages

    def links(self, stream: str = "") -> list[DiallingEnd]:
        """Returns the ends of the links that this gateway dials, for one stream."""
        routes = [route for route in self._serving.values() if _stream(route.config) == stream]
        return [route.link for route in routes if route.link is not None]

    def certificates(self) -> list[tuple[str, Validity]]:
        """Returns the configured routes that show a certificate, each with the validity of its file."""
        return validities_of([route.config for route in self._serving.values()])

    def queues(self) -> list[RouteQueue]:
        """Returns what waits for each configured route."""
        return [route.queue for route in self._serving.values()]

    def _queues(self) -> dict[str, RouteQueue]:
        return {name: route.queue for name, route in self._serving.items()} | self._left

    def _queue(self, name: str) -> RouteQueue:
        queues = self._queues()
        if name not in queues:
            names = ", ".join(map(repr, queues)) or "there are none"
            raise NoSuchRoute(f"no route {name!r}; the routes: {names}")
        return queues[name]


def _about(route: Route | ForeignRoute) -> RouteAbout:
    settings = route.queue.settings
    return RouteAbout(settings.broker, route.problem, route.waits_for, settings.keep is not None)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the routes of a stream are."""

    log: MessageLog
    endings: Endings
    services: Services | None


def _stream(config: AnyRoute) -> str:
    """Returns the stream of a route; routes to other systems than MQTT brokers are of the default stream."""
    return config.stream if isinstance(config, RouteConfig) else ""


def _has_neighbour(config: AnyRoute | None) -> bool:
    return isinstance(config, RouteConfig) and config.neighbour is not None
