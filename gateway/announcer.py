"""The gateway's own messages below ``$SYS``, renewed now and then."""

import asyncio
import logging
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from gateway.logs import about
from gateway.message import Message
from gateway.numbers import Counters, State
from gateway.publishing import Publishing
from gateway.sys_topics import INTERVAL_S, SysTopics

logger = logging.getLogger(__name__)


class Announcer:
    """Publishes what has changed.

    Args:
        publishing: where to.
        counters: what the gateway counts.
        state: returns how things are now.
    """

    def __init__(self, publishing: Publishing, counters: Counters, state: Callable[[], State]) -> None:
        self._publishing = publishing
        self._counters = counters
        self._state = state
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Publishes from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Publishes no more."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        topics = SysTopics(gateway_version(), self._counters, self._state, loop.time())
        while True:
            try:
                for topic, payload in topics.messages(loop.time()):
                    self._publishing.announce(Message(topic, payload, 0, retain=True))
            except OSError as error:  # the next round may work
                logger.error("what is below $SYS could not be renewed", extra=about(reason=str(error)))
            await asyncio.sleep(INTERVAL_S)


def gateway_version() -> str:
    """Returns the version of Holdfast that runs, as it is installed."""
    try:
        return version("holdfast")
    except PackageNotFoundError:  # from a checkout that is not installed
        return "unknown"
