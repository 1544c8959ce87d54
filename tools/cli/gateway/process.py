"""``holdfast gateway run``: the gateway process, composed of the broker and its routes."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from gateway.announcer import gateway_version
from gateway.broker import Broker
from gateway.config_errors import read_text
from gateway.config_file import DEFAULT_PATH
from gateway.errors import ConfigError, GatewayError, is_disk_trouble
from gateway.logs import about, start_logging
from gateway.store.log import MessageLog
from tools import service_manager
from tools.failure import fail, failing_on
from tools.gateway_config import Configuration, changed_keys, read_configuration, wants_json
from uplink.route import ROUTE_PREFIX, Route

COLLECT_AFTER = (20_000, 1, 1)  # objects more that could be part of a cycle; then how rarely older ones are seen

logger = logging.getLogger(__name__)


def run(config: Annotated[Path, typer.Option(help="The gateway's TOML file.")] = DEFAULT_PATH) -> None:
    """Run a gateway until SIGTERM or Ctrl-C. On SIGHUP it reads accounts, access rules and certificates again."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to read again
    os.umask(0o077)  # what the store says is for its owner alone
    with failing_on(GatewayError, command="gateway run"):
        text = read_text(config)
    as_json = wants_json(text)
    start_logging(as_json=as_json)
    with _ending_in_log(as_json):
        configuration = read_configuration(config, text)
        for event, reason in configuration.warnings:
            logger.warning(event, extra=about(reason=reason))
        uvloop.run(_serve(config, configuration))


@contextlib.contextmanager
def _ending_in_log(as_json: bool) -> Iterator[None]:
    """What ends the gateway goes where the log goes, as JSON where that is JSON."""
    try:
        yield
    except GatewayError as error:
        exit_code = 1 if is_disk_trouble(error.__cause__) else 2  # after 2 the service manager does not try again
        if not as_json:
            fail("gateway run", str(error), exit_code)
        for line in str(error).splitlines():
            logger.critical("the gateway cannot run", extra=about(reason=line))
        raise typer.Exit(exit_code) from error
    except Exception as error:
        logger.critical("the gateway ends by a failure of its own", exc_info=True)
        raise typer.Exit(1) from error


async def _serve(path: Path, configuration: Configuration) -> None:
    config = configuration.config
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    store = config.store
    log = await MessageLog.open(Path(store.path), origin=config.name, commit_interval_ms=store.commit_interval_ms)
    try:
        broker = Broker(config, log)
        # A route's place in the log is there before the first message can be.
        serving = [Route(route, config.name, log) for route in configuration.routes]
        _name_missing_routes(log, {route.consumer for route in serving})
        broker.overview.routes = [route.state for route in serving]
        await broker.start()
        async with _watched(path, configuration, broker), asyncio.TaskGroup() as group:
            _collect_less_often()
            logger.info("ready", extra=_about_start(broker, configuration))
            service_manager.tell(service_manager.READY)
            running = [group.create_task(work) for route in serving for work in (route.run(), route.watch())]
            running.append(group.create_task(service_manager.stay_watched()))
            await stop.wait()
            service_manager.tell(service_manager.STOPPING)
            logger.info("told to end: what has come is stored and acknowledged first")
            for task in running:
                task.cancel()
    finally:
        await log.close()


def _about_start(broker: Broker, configuration: Configuration) -> dict[str, Any]:
    config = configuration.config
    return about(
        gateway=config.name,
        version=gateway_version(),
        listeners=", ".join(broker.listeners.places()),
        store=config.store.path,
        routes=", ".join(route.name for route in configuration.routes),
    )


def _collect_less_often() -> None:
    """Garbage is looked for among what comes and goes, and seldom: else a fifth of the time, tens of ms at once, goes
    there, and what ended connections leave is not found for long among all that is there from the start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


@contextlib.asynccontextmanager
async def _watched(path: Path, configuration: Configuration, broker: Broker) -> AsyncIterator[None]:
    """A started broker until it is closed, with what shows how it is doing."""
    overview = broker.overview
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload, path, configuration, broker)
    health = None
    try:
        if broker.config.metrics is not None:
            from gateway.health import HealthServer  # their libraries take 15 MB of memory
            from gateway.metrics import Metrics

            metrics = Metrics(broker.counters, overview.state)
            health = HealthServer(broker.config.metrics.port, metrics, overview.problems, overview.notes)
            await health.open()
        yield
    finally:
        await broker.close()
        if health is not None:
            await health.close()


def _reload(path: Path, running: Configuration, broker: Broker) -> None:
    overview = broker.overview
    overview.not_reloaded = ""
    try:
        broker.reload()
    except ConfigError as error:
        overview.not_reloaded = f"could not be read again and stays as it was: {error}"
        logger.error("something could not be read again and stays as it was", extra=about(reason=str(error)))
    else:
        logger.info("accounts, access rules and certificates were read again")
    _note_changes(path, running)


def _note_changes(path: Path, running: Configuration) -> None:
    """Says what of the configuration file only the next start will take, or that the file would end that."""
    if not path.is_file():
        return  # a pipe has been read, and a file that is gone is on its way to be another one
    try:
        changed = changed_keys(running, read_configuration(path))
    except ConfigError as error:
        for line in str(error).splitlines():
            logger.error("the next start would fail", extra=about(reason=line))
    else:
        if changed:
            keys = ", ".join(changed)
            logger.warning("changed keys count from the next start", extra=about(file=str(path), keys=keys))


def _name_missing_routes(log: MessageLog, present: set[str]) -> None:
    """What waits for a route that is not configured any more is kept: to drop it is not for a program to decide."""
    for consumer in log.consumers():
        if consumer.startswith(ROUTE_PREFIX) and consumer not in present:
            logger.warning("%s has no [[route]] table any more: what waits for it is kept until it has one", consumer)
