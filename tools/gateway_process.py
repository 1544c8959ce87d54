"""``holdfast gateway run``: the gateway process, composed of the broker and its routes."""

import asyncio
import logging
import signal
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from gateway.broker import Broker
from gateway.config import GatewayConfig, load
from gateway.errors import GatewayError
from gateway.store.log import MessageLog
from uplink.config import RouteConfig, decode_routes
from uplink.route import ROUTE_PREFIX, Route

logger = logging.getLogger(__name__)


def run(config: Annotated[Path, typer.Option(help="The gateway's TOML file.")]) -> None:
    """Run a gateway until SIGTERM or Ctrl-C."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        gateway_config, tables = load(config)
        routes = decode_routes(config, tables)
        uvloop.run(_serve(gateway_config, routes))
    except GatewayError as error:
        typer.echo(f"holdfast gateway: {error}", err=True)
        raise typer.Exit(error.exit_code) from None


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
        await broker.start()
        print(f"gateway {config.name} ready", flush=True)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(route.run()) for route in serving]
            await stop.wait()
            for task in running:
                task.cancel()
        await broker.close()
    finally:
        await log.close()


def _name_missing_routes(log: MessageLog, present: set[str]) -> None:
    """What waits for a route that is not configured any more is kept: to drop it is not for a program to decide."""
    for consumer in log.consumers():
        if consumer.startswith(ROUTE_PREFIX) and consumer not in present:
            logger.warning("%s has no [[route]] table any more: what waits for it is kept until it has one", consumer)
