"""The local broker: listeners on one side, the message log on the other, clients' sessions in between."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path

from gateway.auth.admission import AccessControl
from gateway.broker.stream import Stream
from gateway.broker.taken_streams import TakenStreams
from gateway.config.schema import GatewayConfig, in_stream, store_of
from gateway.connection.connection import Connection
from gateway.connection.services import Common, Services
from gateway.errors import ListenError, StoreError
from gateway.holdings import Holdings
from gateway.listeners.listeners import Listeners
from gateway.loop.pace import LineRooms, Paces, Shifts, TimeShares
from gateway.loop.timers import Timers
from gateway.observe.certificates import Certificates
from gateway.observe.links import Link, Links
from gateway.observe.overview import ObservedStream, Overview
from gateway.observe.sys_topics import Announcer
from gateway.port import Port
from gateway.sessions.devices import Devices
from gateway.store import MessageLog
from gateway.streams.choice import StreamChoice
from host.errors import ConfigError
from wire import reasons

CATCH_UP_S = 2.0  # for clients that send without end, or wait for room in the store, when the broker closes

logger = logging.getLogger(__name__)


class Broker:
    """A gateway's broker.

    Args:
        config: the gateway's configuration.
        log: the message log of the default stream, open; it stays open when the broker closes.
        logs: the stores of the other streams, by name, likewise (`stream_logs`).

    ``services`` are the default stream's parts, which connections and routes use.

    Raises:
        ConfigError: accounts, access rules or certificates cannot be used.
    """

    def __init__(self, config: GatewayConfig, log: MessageLog, logs: Mapping[str, MessageLog] | None = None) -> None:
        self.config = config
        self.log = log
        self.counters = log.counters
        folder = Path(config.store.path)
        self._devices = Devices(folder)
        self._timers = Timers()
        streams: dict[str, Services] = {}
        users = {user: one.name for one in config.stream for user in one.users}
        self._access_control = AccessControl(
            Path(config.accounts) if config.accounts else None,
            Path(config.acl) if config.acl else None,
            gateway=config.name,
            streams=StreamChoice(streams, users),
        )
        self._common = common = Common(
            self._access_control,
            self._devices,
            Holdings(config.limits.kept_bytes),
            self._timers,
            Paces(config.limits.messages_per_s),
            TimeShares(),
            Shifts(),
            LineRooms(),
            streams,
        )
        self.streams: list[Stream] = []
        self.stream_links: list[Links] = []
        self._dialled: Callable[[str], Sequence[Link]] = _no_links
        for name, its_log in {"": log, **(logs or {})}.items():
            self._add(Stream(name, in_stream(config, name), its_log, common))
        default = self.streams[0]
        self._taken = TakenStreams(config, common, self._add_taken)
        self.network, self.sessions = default.network, default.sessions
        self._access_control.access.other_gateways = self.network.links.gateways
        self.services = default.services
        self.listeners = Listeners(config, self.connect)
        lines = self.listeners.missing_lines
        self.certificates = Certificates(self.listeners.certificates)
        self.overview = Overview(default.publishing, self.stream_links, default.multicast, lines, self.certificates)
        for stream in self.streams:
            self._observe(stream)
        self._announcer = Announcer(default.publishing, log.counters, self.overview.state)
        self._assistant = None
        if (shown := config.home_assistant) is not None:
            from gateway.home_assistant.assistant import HomeAssistant  # few gateways need it, and it takes memory

            offers = default.services.offers
            self._assistant = HomeAssistant(shown, config.name, log, default.publishing, offers)
        self._connections: dict[asyncio.Task[None], Connection] = {}
        self._closing = False
        self._tell_streams()
        if config.network.streams == "any":
            self.network.note_streams = self._taken.note

    def _add(self, stream: Stream) -> None:
        self.streams.append(stream)
        links = Links(self.config.name, stream.network, stream.sessions, stream.log, stream.name)
        links.dialled = partial(self._dialled, stream.name)
        self.stream_links.append(links)

    def carry_streams(self, dialled: Callable[[str], Sequence[Link]], take: Callable[[Services], None]) -> None:
        """Shows the links that routes dial for a stream, and has a stream of neighbours carried that is taken."""
        self._dialled, self._taken.carry = dialled, take
        for links in self.stream_links:
            links.dialled = partial(dialled, links.stream)

    def _add_taken(self, stream: Stream) -> None:
        self._add(stream)
        self._observe(stream)
        self._tell_streams()

    def _observe(self, stream: Stream) -> None:
        self.overview.add(ObservedStream(stream.name, stream.log, stream.sessions, stream.limits))

    def _tell_streams(self) -> None:
        self.network.streams = tuple(self._common.streams)

    async def start(self) -> None:
        """Loads the sessions, then opens the listeners. After an error the broker is closed again.

        Raises:
            ListenError: a listener cannot be opened.
            StoreError: the file of the devices cannot be used.
        """
        await self._devices.open()
        for stream in self.streams:
            await stream.open()
        if self._assistant is not None:
            self._assistant.open()
        try:
            await self.listeners.open()
            self._announcer.open()
        except ListenError:
            await self.close()
            raise

    async def close(self) -> None:
        """Accepts no more clients and disconnects the connected ones; their sessions stay.

        What the clients have sent is stored and acknowledged before.
        """
        self._closing = True
        await self._taken.stop()
        for stream in self.streams:
            stream.close_wills()
            await stream.write_all()
        await self._catch_up()
        for stream in self.streams:
            await stream.write_all()
        for connection in list(self._connections.values()):
            connection.disconnect(reasons.SERVER_SHUTTING_DOWN)
        await self.listeners.close()
        self._announcer.close()
        if self._connections:
            await asyncio.wait(self._connections)
        self._timers.close()
        if self._assistant is not None:
            await self._assistant.close()
        for stream in self.streams:
            await stream.close()
        await self._devices.close()
        await self._access_control.close()
        await self._taken.close()

    async def _catch_up(self) -> None:
        """Lets the connections act on what has come: a message whose PUBACK is not read goes to its client again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                for connection in list(self._connections.values()):
                    await connection.caught_up()

    def reload(self) -> None:
        """Reads accounts, access rules and certificates again, and disconnects the users with a changed account, and
        the clients whose certificate is revoked now.

        Raises:
            ConfigError: a file cannot be used; what was read from it before still holds.
        """
        errors = []
        for reload in (self._reload_accounts, self.listeners.reload):
            try:
                reload()
            except ConfigError as error:
                errors.append(str(error))
        for connection in list(self._connections.values()):
            if connection.is_revoked:
                connection.disconnect(reasons.ADMINISTRATIVE_ACTION)
        if errors:
            raise ConfigError("; ".join(errors))

    def _reload_accounts(self) -> None:
        access = copy(self._access_control.access)
        try:
            changed = self._access_control.reload()
        finally:
            if self._access_control.access.rules != access.rules:
                for stream in self.streams:
                    stream.change_rights(access)
        for stream in self.streams:
            stream.reconsider_rights()
        for connection in list(self._connections.values()):
            if connection.user in changed:
                connection.disconnect(reasons.ADMINISTRATIVE_ACTION)

    def connect(self, port: Port, stream: str) -> None:
        """Serves a listener's new port, in a task of its own; ``stream`` is the listener's."""
        if self._closing:
            return port.close()
        self.counters.connections_opened += 1
        connection = Connection(self.services, port, stream)
        task = asyncio.get_running_loop().create_task(connection.serve())
        self._connections[task] = connection
        task.add_done_callback(self._served)
        return None

    def _served(self, task: asyncio.Task[None]) -> None:
        connection = self._connections.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s: unexpected failure, other connections go on", connection.name, exc_info=error)


def _no_links(_stream: str) -> Sequence[Link]:
    return ()


@contextlib.contextmanager
def naming_stream(stream: str) -> Iterator[None]:
    """Says of which stream a store is that cannot be used, "" for the default one. Raises StoreError."""
    try:
        yield
    except StoreError as error:
        if not stream:
            raise
        way_on = f"with `--stream {stream}`; a gateway without this [[stream]] serves the others"
        text = f"stream {stream!r}: {error} ({way_on})"
        raise StoreError(text) from error.__cause__


@contextlib.asynccontextmanager
async def stream_logs(config: GatewayConfig) -> AsyncIterator[dict[str, MessageLog]]:
    """Opens the message logs of the streams besides the default one, by name, and closes them in the end.

    Raises StoreError: one cannot be used.
    """
    logs: dict[str, MessageLog] = {}
    try:
        for one in config.stream:
            folder, interval_ms = store_of(config, one.name).path, one.commit_interval_ms
            with naming_stream(one.name):
                logs[one.name] = await MessageLog.open(Path(folder), origin=config.name, commit_interval_ms=interval_ms)
        yield logs
    finally:
        for log in logs.values():
            await log.close()
