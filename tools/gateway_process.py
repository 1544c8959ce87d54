"""``holdfast gateway run``: the gateway process, composed of the broker and its routes."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from gateway.broker import Broker
from gateway.config import GatewayConfig
from gateway.config_file import DEFAULT_PATH, check_files, load
from gateway.errors import ConfigError, GatewayError
from gateway.exposure import exposed, exposed_files
from gateway.logs import about, start_logging
from gateway.overview import Overview
from gateway.places import check_places
from gateway.store.log import MessageLog
from tools import service_manager
from tools.failure import failing_on
from uplink import credentials
from uplink.config import RouteConfig, decode_routes
from uplink.route import ROUTE_PREFIX, Route

COLLECT_AFTER = (20_000, 1, 1)  # objects more that could be part of a cycle; then how rarely older ones are seen

logger = logging.getLogger(__name__)


def run(config: Annotated[Path, typer.Option(help="The gateway's TOML file.")] = DEFAULT_PATH) -> None:
    """Run a gateway until SIGTERM or Ctrl-C; SIGHUP has it read accounts, access rules and certificates again."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to read again
    os.umask(0o077)  # what the store says is for its owner alone
    with failing_on(GatewayError, command="gateway run"):
        gateway_config, tables = load(config)
        routes = decode_routes(config, tables)
        check_files(config, gateway_config)
        credentials.check(config, routes)
        check_places(config, gateway_config)
        start_logging(as_json=gateway_config.log.format == "json")
        for warning in (*exposed(gateway_config), *exposed_files(credentials.secret_files(routes))):
            logger.warning("a secret is open to others", extra=about(reason=warning))
        uvloop.run(_serve(gateway_config, routes))


async def _serve(config: GatewayConfig, routes: list[RouteConfig]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    store = config.store
    log = await MessageLog.open(Path(store.path), origin=config.name, commit_interval_ms=store.commit_interval_ms)
    try:
        broker = Broker(config, log)
        # A route's place in the log is there before the first message can be.
        serving = [Route(route, config.name, log) for route in routes]
        _name_missing_routes(log, {route.consumer for route in serving})
        broker.overview.routes = [route.state for route in serving]
        await broker.start()
        async with _watched(broker), asyncio.TaskGroup() as group:
            _collect_less_often()
            print(f"gateway {config.name} ready", flush=True)
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


def _collect_less_often() -> None:
    """Garbage is looked for among what comes and goes, and seldom: else a fifth of the time, tens of ms at once, goes
    there, and what ended connections leave is not found for long among all that is there from the start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


@contextlib.asynccontextmanager
async def _watched(broker: Broker) -> AsyncIterator[None]:
    """A started broker until it is closed, with what shows how it is doing."""
    overview = broker.overview
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload, broker, overview)
    health = None
    try:
        if broker.config.metrics is not None:
            from gateway.health import HealthServer  # their libraries take 15 MB of memory
            from gateway.metrics import Metrics

            metrics = Metrics(broker.counters, overview.state)
            health = HealthServer(broker.config.metrics.port, metrics, overview.problems)
            await health.open()
        yield
    finally:
        await broker.close()
        if health is not None:
            await health.close()


def _reload(broker: Broker, overview: Overview) -> None:
    overview.not_reloaded = ""
    try:
        broker.reload()
    except ConfigError as error:
        overview.not_reloaded = f"could not be read again and stays as it was: {error}"
        logger.error("something could not be read again and stays as it was", extra=about(reason=str(error)))
    else:
        logger.info("accounts, access rules and certificates were read again")


def _name_missing_routes(log: MessageLog, present: set[str]) -> None:
    """What waits for a route that is not configured any more is kept: to drop it is not for a program to decide."""
    for consumer in log.consumers():
        if consumer.startswith(ROUTE_PREFIX) and consumer not in present:
            logger.warning("%s has no [[route]] table any more: what waits for it is kept until it has one", consumer)
