"""The brokers that are measured, each in a process of its own on one core; the generator has the other."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from tools.cli.failure import failing_on
from tools.lab.bench.broker.load import Task
from tools.lab.figure import Figure
from tools.lab.strace import slowed
from tools.lab.testing.gateway import RUN, Gateway
from tools.lab.testing.mosquitto import Mosquitto, MosquittoUnavailable
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process, ProcessFailed, Server, holdfast, python

BROKER_CORE, GENERATOR_CORE = 0, 1
LOAD_DEADLINE_S = 900.0
BUSY_MAX = 0.9  # of its core; a busier generator would measure its own limit

INTERVAL = "commit_interval_ms = {interval_ms}"
LIMITS = "kept_bytes = 1_000_000_000\ninflight = 1000"
MOSQUITTO = "max_inflight_messages 0\nset_tcp_nodelay true\nlog_type none\n"
AUTOSAVE = "autosave_on_changes true\nautosave_interval 1\n"
Kind = TypeVar("Kind", bound=Process)


class BenchUnavailable(Exception):
    """A benchmark cannot run here; the text says what is missing."""


@contextlib.contextmanager
def bench_folder(command: str, *failures: type[Exception]) -> Iterator[Path]:
    """Lends an empty folder. Ends the command with 2 if the benchmark cannot run, or for one of the failures."""
    lost = failing_on(BenchUnavailable, *failures, command=command)
    with lost, tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        yield Path(folder)


def gateway(
    folder: Path,
    interval_ms: int = 0,
    *,
    disk_is_slow: bool = False,
    more: str = "",
    name: str = "bench",
    rules: str = "",
    core: int = BROKER_CORE,
    port: int = 0,
) -> contextlib.AbstractContextManager[Gateway]:
    """Our gateway on a store in a folder, which it makes, with more configuration, and access rules if there are any.

    ``core`` is where it runs, and ``port`` where it listens, 0: at any free port.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [*_on(core), *(slowed(RUN) if disk_is_slow else RUN)]
    store = INTERVAL.format(interval_ms=interval_ms)
    keys: dict[str, Any] = {"name": name, "rules": rules, "store": store, "limits": LIMITS, "port": port}
    return _running(Gateway(folder, more, command=command, **keys))


def mosquitto(
    folder: Path, autosave: bool = False, *, core: int = BROKER_CORE, more: str = ""
) -> contextlib.AbstractContextManager[Mosquitto]:
    """Runs mosquitto in a folder, which it makes, in memory or with a store that it writes on every change.

    Raises BenchUnavailable.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = MOSQUITTO + (AUTOSAVE if autosave else "") + more
    try:
        return _running(Mosquitto(folder, lines, is_persistent=autosave, prefix=_on(core)))
    except MosquittoUnavailable as error:
        raise BenchUnavailable(str(error)) from None


def lander(
    folder: Path, broker: Server, topic_filter: str, landing: Path
) -> contextlib.AbstractContextManager[Process]:
    """A lander that writes what comes from a broker to landing files. Raises BenchUnavailable."""
    argv = holdfast("lander", "run", "--volatile", "--name", "bench", "--group", "bench", "--filter", topic_filter)
    argv += ["--broker", f"mqtt://127.0.0.1:{broker.port}", "--landing", str(landing), "--roll-seconds", "1"]
    return _running(Process("a lander", [*_on(GENERATOR_CORE), *argv], folder / "lander-output", ready="subscribed"))


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """Keeps this process on a core. Programs are started before it."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[core]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def bare_server() -> contextlib.AbstractContextManager[Server]:
    """Runs a server that only acknowledges, to measure the generator's own limit."""
    port = free_port()
    argv = [*_on(BROKER_CORE), *python("tools.lab.bench.broker.bare", str(port))]
    server = Server("a server that only acknowledges", argv, ready=port)
    server.port = port
    return _running(server)


def load(broker: Server, **task: Any) -> dict[str, Any]:
    """Runs the generator against a broker; returns what it measured. Raises BenchUnavailable."""
    text = json.dumps(asdict(Task(port=broker.port, broker=broker.pid, **task)))
    code, lines = _ended(GENERATOR_CORE, python("tools.lab.bench.broker.load", text))
    if code:
        raise BenchUnavailable(f"the generator failed: {lines[-1:]}")
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def slow_sync_s(folder: Path) -> float:
    """Returns how long a sync takes on the slow disk of a gateway, in seconds."""
    _, lines = _ended(BROKER_CORE, slowed(python("tools.lab.bench.broker.disk", str(folder))))
    return float(lines[-1])


class Generator:
    """Runs the generator, and remembers the highest processor load that it had with the broker ``subject``."""

    def __init__(self, subject: Server) -> None:
        self._subject = subject
        self._busiest = 0.0

    def load(self, broker: Server, **task: Any) -> dict[str, Any]:
        """The same as ``load``; raises BenchUnavailable also if no message was acknowledged."""
        result = load(broker, **task)
        if not result["rate"]:
            raise BenchUnavailable("no message came through in time; --seconds gives more")
        if broker is self._subject:
            self._busiest = max(self._busiest, result["generator_cpu"])
        return result

    def figure(self) -> Figure:
        """Returns the figure of the generator's highest processor load, which must stay below the limit."""
        return Figure("the generator, when it was busiest", "of a core", self._busiest, None, BUSY_MAX, at_most=True)


@contextlib.contextmanager
def _running(process: Kind) -> Iterator[Kind]:
    process.start()
    try:
        process.wait_ready()
        yield process
    except ProcessFailed as failure:
        raise BenchUnavailable(str(failure)) from failure
    finally:
        process.stop()


def _ended(core: int, argv: Sequence[str]) -> tuple[int, list[str]]:
    process = Process("a program", [*_on(core), *argv])
    process.start()
    try:
        return process.ended(LOAD_DEADLINE_S)
    finally:
        process.kill()


def _on(core: int) -> list[str]:
    """Returns what runs a command on a core. Raises BenchUnavailable."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchUnavailable("two cores are needed, one for the broker and one for the generator")
    return ["taskset", "-c", str(cores[core])]
