"""``holdfast gateway run``: the gateway process, composed of the broker and its routes."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
import uvloop

from gateway.broker import Broker, naming_stream, stream_logs
from gateway.config.connectors import command_topics
from gateway.config.errors import read_text
from gateway.config.schema import GatewayConfig, stream_names, with_taken_streams
from gateway.limits import Verdict
from gateway.log_fields import about, is_journal, start_logging
from gateway.store import MessageLog, consumer_names
from gateway.store.repair import check_store
from host.errors import ConfigError, HostError
from host.files import write_no_bytecode
from host.release import release
from tools.cli.failure import fail
from tools.cli.gateway.arguments import ConfigAgain, ConfigFile, chosen, store_folder
from tools.cli.gateway.config import Configuration, changed_keys, read_configuration, wants_json
from uplink.carry import Imports
from uplink.control import Control
from uplink.routes import Routes

if TYPE_CHECKING:
    from gateway.connectors.connectors import Connectors
    from gateway.page.server import PageServer

COLLECT_AFTER = (20_000, 1, 1)  # new objects before a collection; then how rarely older ones are examined
CERTIFICATES_LOOK_S = 3600.0  # between two looks at the dates of certificates
ON_TRIAL = "HOLDFAST_ON_TRIAL"
"""The variable that is set after an upgrade, until the new release has been healthy for a while."""
READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"  # sd_notify(3)

logger = logging.getLogger(__name__)


def run(file: ConfigFile = None, config: ConfigAgain = None) -> None:
    """Run a gateway until SIGTERM or Ctrl-C.

    On SIGHUP it reads accounts, access rules, certificates and routes again.
    """
    path = chosen("gateway run", file, config)
    write_no_bytecode()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to read again
    os.umask(0o077)  # only the owner may read the store's files
    start_logging()
    with _ending_in_log(as_json=False):
        text = read_text(path)
    as_json = wants_json(text)
    start_logging(as_json=as_json)
    with _ending_in_log(as_json):
        configuration = read_configuration(path, text)
        for event, reason in configuration.warnings:
            logger.warning(event, extra=about(reason=reason))
        uvloop.run(_serve(path, configuration))


@contextlib.contextmanager
def _ending_in_log(as_json: bool) -> Iterator[None]:
    """Writes the error that ends the gateway to its log, as JSON if the log is JSON."""
    try:
        yield
    except HostError as error:
        exit_code = 1 if error.may_pass else 2  # after 2 the service manager does not try again
        if not as_json and not is_journal(sys.stderr):
            fail("gateway run", str(error), exit_code)
        for line in str(error).splitlines():
            logger.critical("the gateway cannot run", extra=about(reason=line))
        raise typer.Exit(exit_code) from error
    except Exception as error:
        logger.critical("the gateway ends by a failure of its own", exc_info=True)
        raise typer.Exit(1) from error


async def _serve(path: Path, configuration: Configuration) -> None:
    config = with_taken_streams(configuration.config)
    if ON_TRIAL in os.environ:
        for stream in stream_names(config):
            with naming_stream(stream):
                check_store(store_folder(config, stream), keeps_format=True)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    store = config.store
    log = await MessageLog.open(Path(store.path), origin=config.name, commit_interval_ms=store.commit_interval_ms)
    opened = contextlib.AsyncExitStack()
    try:
        logs = await opened.enter_async_context(stream_logs(config))
        broker = Broker(config, log, logs)
        routes = Routes(configuration.routes, config.name, log, broker.services.endings, broker.services)
        broker.overview.routes = routes.states
        broker.certificates.routes = routes.certificates
        broker.carry_streams(routes.links, routes.take_stream)
        await broker.start()
        connectors = _connectors(config, broker)
        imports = Imports(
            Path(store.path),
            log,
            broker.services.publishing.publish,
            lambda topic: broker.services.limits.verdict(topic, "", "") is Verdict.TAKE,
        )
        control = Control(Path(store.path), routes, imports, broker.stream_links, broker.overview.see_drops)
        async with _watched(path, configuration, broker, routes), control.opened(), asyncio.TaskGroup() as group:
            _collect_less_often()
            logger.info("ready", extra=_about_start(broker, configuration))
            _tell_service_manager(READY)
            running = [group.create_task(routes.run()), group.create_task(_stay_watched())]
            running.append(group.create_task(_watch_certificates(broker)))
            if connectors is not None:
                running.append(group.create_task(connectors.run()))
            await stop.wait()
            _tell_service_manager(STOPPING)
            logger.info("told to end: what has come is stored and acknowledged first")
            for task in running:
                task.cancel()
    finally:
        await opened.aclose()
        await log.close()


def _connectors(config: GatewayConfig, broker: Broker) -> "Connectors | None":
    """Returns what runs the connectors, None without any. What former ones kept in the store is forgotten."""
    if any(name.startswith(consumer_names.COMMANDS) for name in broker.log.consumers.names()):
        from gateway.connectors.commands import forget_others

        forget_others(broker.log, [one.name for one in config.connector if command_topics(one)])
    if not config.connector:
        return None
    from gateway.connectors.connectors import Connectors  # few gateways need it

    services = broker.services
    connectors = Connectors(config.connector, config.name, services.log, services.publishing, services.limits)
    broker.overview.connectors = connectors.states
    return connectors


def _about_start(broker: Broker, configuration: Configuration) -> dict[str, Any]:
    config = configuration.config
    return about(
        gateway=config.name,
        version=release(),
        listeners=", ".join(broker.listeners.places()),
        store=config.store.path,
        routes=", ".join(route.name for route in configuration.routes),
        **({"connectors": ", ".join(one.name for one in config.connector)} if config.connector else {}),
    )


def _collect_less_often() -> None:
    """Collects garbage seldom, and only among objects made from now on. By default a fifth of the processor time goes
    to collections of tens of ms each, and the garbage of ended connections is found late among all that exists from the
    start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


@contextlib.asynccontextmanager
async def _watched(path: Path, configuration: Configuration, broker: Broker, routes: Routes) -> AsyncIterator[None]:
    """Serves the broker's health and metrics and handles SIGHUP, then closes the broker."""
    overview = broker.overview
    health = page = None
    try:
        page = _page(broker, routes)
        reloaded = [broker.reload] if page is None else [broker.reload, page.reload]
        reload = partial(_reload, path, configuration, reloaded, broker, routes)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
        if broker.config.metrics is not None:
            from gateway.observe.health import HealthServer  # their libraries take 15 MB of memory
            from gateway.observe.metrics import Metrics

            metrics = Metrics(broker.counters, overview.state, overview.problems)
            port, firmware = broker.config.metrics.port, broker.config.metrics.firmware
            health = HealthServer(port, metrics, overview.problems, overview.notes, firmware)
            await health.open()
        if page is not None:
            await page.open()
        yield
    finally:
        await broker.close()
        if health is not None:
            await health.close()
        if page is not None:
            await page.close()


def _page(broker: Broker, routes: Routes) -> "PageServer | None":
    """Returns the server of the status page, None without one. Raises ConfigError."""
    config = broker.config
    if config.page is None:
        return None
    from gateway.page.observer import Observer
    from gateway.page.server import PageServer  # its libraries take 15 MB of memory

    shared = broker.services.shared
    observer = Observer(config.name, release(), broker.overview, shared.devices, routes.described, time.time())
    page = PageServer(config.page, config.name, shared.access_control.watchers, observer)
    broker.certificates.page = page.certificates
    return page


def _reload(
    path: Path, running: Configuration, reloaded: Sequence[Callable[[], None]], broker: Broker, routes: Routes
) -> None:
    overview = broker.overview
    overview.not_reloaded = ""
    for reload in reloaded:
        try:
            reload()
        except ConfigError as error:
            overview.not_reloaded = f"could not be read again and stays as it was: {error}"
            logger.error("something could not be read again and stays as it was", extra=about(reason=str(error)))
    unfit = _reload_routes(path, running, routes)
    if not overview.not_reloaded:  # logged last: after this line the gateway reads no file until the next SIGHUP
        logger.info("accounts, access rules and certificates were read again")
        overview.not_reloaded = unfit


def _reload_routes(path: Path, running: Configuration, routes: Routes) -> str:
    """Changes the routes to those in the file, and logs which other keys only take effect at the next start.

    A file with which the next start would fail changes nothing. Returns what is wrong with it, "" if nothing is.
    """
    if not path.is_file():
        return ""  # a pipe cannot be read twice, and a file that is gone is being replaced
    unfit = "the routes stay as they were, and the next start would fail"
    try:
        found = read_configuration(path)
    except ConfigError as error:
        for line in str(error).splitlines():
            logger.error(unfit, extra=about(reason=line))
        return f"{unfit}: {'; '.join(str(error).splitlines())}"
    else:
        for event, reason in found.warnings:
            if (event, reason) not in running.warnings:
                logger.warning(event, extra=about(reason=reason))
        routes.reload(found.routes)
        running.routes, running.warnings = found.routes, found.warnings
        if changed := changed_keys(running, found):
            keys = ", ".join(changed)
            logger.warning("changed keys count from the next start", extra=about(file=str(path), keys=keys))
        return ""


def _tell_service_manager(what: str) -> None:
    """Sends a state to systemd, if it started this process with a socket for that."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address.startswith("@"):
        address = "\0" + address[1:]
    if address:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.sendto(what.encode(), address)


async def _watch_certificates(broker: Broker) -> None:
    """Logs each certificate that comes to its end while the gateway runs, once it nears and once it has come."""
    told = {*broker.certificates.problems(), *broker.certificates.notes()}  # the start has said these
    while True:
        await asyncio.sleep(CERTIFICATES_LOOK_S)
        for line in (*broker.certificates.problems(), *broker.certificates.notes()):
            if line not in told:
                told.add(line)
                logger.warning("a certificate has to be renewed", extra=about(reason=line))


async def _stay_watched() -> None:
    """Tells systemd's watchdog, twice in the time that it allows, that the event loop runs; without end."""
    allowed_us = int(os.environ.get("WATCHDOG_USEC", "0"))
    while allowed_us:
        _tell_service_manager(ALIVE)
        await asyncio.sleep(allowed_us / 2 / 1_000_000)
