"""The connectors of a gateway: they begin and end with it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from gateway.config.connectors import ConnectorConfig, LineConfig, ModbusConfig, NmeaConfig, command_topics
from gateway.connectors.commands import Commands
from gateway.connectors.keeping import Keeper
from gateway.connectors.listening import Listening
from gateway.connectors.polling import Polling
from gateway.counters import ConnectorState
from gateway.limits import Limits
from gateway.sessions.publishing import Publishing
from gateway.store import MessageLog

BEGIN_AGAIN_S = 10.0  # after an unexpected failure

logger = logging.getLogger(__name__)


class Connectors:
    """Runs connectors, each on its own: a failure of one leaves the others as they are.

    Args:
        configs: the connectors.
        gateway: the gateway's name.
        log: the message log.
        publishing: makes the work that stores a message.
        limits: say whether the store takes it.
    """

    def __init__(
        self,
        configs: Sequence[ConnectorConfig],
        gateway: str,
        log: MessageLog,
        publishing: Publishing,
        limits: Limits,
    ) -> None:
        self._running: list[tuple[str, Listening | Polling, Keeper]] = []
        self._commands: list[tuple[str, Commands]] = []
        for config in configs:
            keeper = Keeper(log, publishing, limits, gateway, config.format)
            connector = _connector_of(config, keeper)
            self._running.append((config.name, connector, keeper))
            if isinstance(config, ModbusConfig) and isinstance(connector, Polling) and command_topics(config):
                commands = Commands(config, log, publishing, limits, gateway, connector)
                self._commands.append((config.name, commands))

    def states(self) -> list[ConnectorState]:
        """Returns how each of them is doing."""
        return [one.state for _, one, _ in self._running]

    async def run(self) -> None:
        """Runs them until it is cancelled. What was read by then is stored."""
        tasks = [asyncio.create_task(_keep_up(name, one.run)) for name, one, _ in self._running]
        tasks += [asyncio.create_task(_keep_up(name, one.run)) for name, one in self._commands]
        storing = [asyncio.create_task(_keep_up(name, keeper.run)) for name, _, keeper in self._running]
        try:
            await asyncio.gather(*tasks, *storing)
        finally:
            for ended in (tasks, storing):
                for task in ended:
                    task.cancel()
                await asyncio.gather(*ended, return_exceptions=True)
            for _, _, keeper in self._running:
                await keeper.close()


def _connector_of(config: ConnectorConfig, keeper: Keeper) -> Listening | Polling:
    return Listening(config, keeper) if isinstance(config, LineConfig | NmeaConfig) else Polling(config, keeper)


async def _keep_up(name: str, run: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await run()
        except Exception:
            logger.exception("connector %s: unexpected failure, it begins again", name)
        await asyncio.sleep(BEGIN_AGAIN_S)
