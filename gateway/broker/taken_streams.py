"""The streams of neighbours that a gateway without a ``[[stream]]`` for them takes, to carry their messages on."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from gateway.broker.stream import Stream
from gateway.config.schema import GatewayConfig, in_stream, store_of, with_streams
from gateway.connection.services import Common, Services
from gateway.errors import StoreError
from gateway.store import MessageLog
from gateway.streams.names import NAME_BYTES_MAX, is_stream_name

STREAMS_MOST = 8  # with those of neighbours: each takes a thread, 9 open files and 10 MB

logger = logging.getLogger(__name__)


class TakenStreams:
    """Opens the streams that neighbours have and the gateway lacks.

    Args:
        config: the gateway's configuration.
        common: what all streams of the gateway share.
        add: adds a stream that is open to the gateway's.

    ``carry`` is called with the services of each, behind ``add``.
    """

    def __init__(self, config: GatewayConfig, common: Common, add: Callable[[Stream], None]) -> None:
        self._config = config
        self._common = common
        self._add = add
        self.carry: Callable[[Services], None] = _carry_nowhere
        self._logs: dict[str, MessageLog | None] = {}  # None while a log is being opened
        self._taking: set[asyncio.Task[None]] = set()
        self._is_closing = False

    def note(self, names: Iterable[str]) -> None:
        """A neighbour has these streams: takes each one that the gateway lacks, as far as there is room."""
        refused: list[str] = []
        known = self._common.streams
        for name in names:
            if not name or name in known or name in self._logs or self._is_closing:
                continue
            if not is_stream_name(name) or len(known) + len(self._taking) > STREAMS_MOST:
                refused.append(name)
                continue
            self._logs[name] = None
            task = asyncio.get_running_loop().create_task(self._take(name))
            self._taking.add(task)
            task.add_done_callback(self._taking.discard)
        if refused:
            text = "%s streams of a neighbour are not taken, such as %r: with %s streams they need a [[stream]]"
            logger.warning(text, len(refused), refused[0][:NAME_BYTES_MAX], STREAMS_MOST)

    async def _take(self, name: str) -> None:
        config = with_streams(self._config, [name])
        store = store_of(config, name)
        try:
            log = self._logs[name] = await MessageLog.open(Path(store.path), origin=config.name)
        except StoreError as error:
            del self._logs[name]  # the next connection of a neighbour tries again
            logger.error("stream %s of a neighbour cannot be taken: %s", name, error)
            return
        self._config = config
        stream = Stream(name, in_stream(config, name), log, self._common)
        await stream.open()
        self._add(stream)
        logger.info("stream %s of a neighbour is taken", name)
        self.carry(stream.services)

    async def stop(self) -> None:
        """Takes no more streams; returns when none is being opened."""
        self._is_closing = True
        if self._taking:
            await asyncio.wait(self._taking)

    async def close(self) -> None:
        """Closes the logs; the streams are closed."""
        for log in self._logs.values():
            if log is not None:
                await log.close()


def _carry_nowhere(_services: Services) -> None:
    """No route carries the stream."""
