"""The brokers that are measured, each in a process of its own on one core; the generator has the other."""

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools.cli.paths import source_root
from tools.lab.bench.broker.load import Task
from tools.lab.figure import Figure
from tools.lab.strace import slowed
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process, ProcessFailed, process_io, process_times_s

BROKER_CORE, GENERATOR_CORE = 0, 1
LOAD_DEADLINE_S = 900.0
BUSY_MAX = 0.9  # of its core; a busier generator would measure its own limit

GATEWAY = """\
name = "{name}"
{acl}
[store]
path = "store"
commit_interval_ms = {interval_ms}
[limits]
kept_bytes = 1_000_000_000
inflight = 1000
[[listener]]
kind = "tcp"
port = {port}
"""
MOSQUITTO = """\
listener {port} 127.0.0.1
allow_anonymous true
max_inflight_messages 0
max_queued_messages 0
set_tcp_nodelay true
log_type none
"""
AUTOSAVE = """\
persistence true
persistence_location {folder}/
autosave_on_changes true
autosave_interval 1
"""


class BenchUnavailable(Exception):
    """A benchmark cannot run here; the text says what is missing."""


class Program:
    """A program that runs: its process identifier."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def status(self, key: str) -> int:
        """Returns a number of /proc/PID/status; memory is in kB."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1])
        raise KeyError(key)

    def io(self, key: str) -> int:
        """Returns a counter of /proc/PID/io."""
        return process_io(self.pid, key)

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        os.kill(self.pid, number)

    def cpu_s(self) -> float:
        """Returns the processor time used so far, in seconds."""
        return sum(process_times_s(self.pid))

    def user_s(self) -> float:
        """Returns the processor time used so far by the program itself, without the kernel's, in seconds."""
        return process_times_s(self.pid)[0]


class Broker(Program):
    """A broker that runs, and its port."""

    def __init__(self, port: int, pid: int) -> None:
        super().__init__(pid)
        self.port = port


@contextlib.contextmanager
def gateway(
    folder: Path,
    interval_ms: int = 0,
    *,
    disk_is_slow: bool = False,
    more: str = "",
    name: str = "bench",
    rules: str = "",
    core: int | None = BROKER_CORE,
    port: int = 0,
) -> Iterator[Broker]:
    """Our gateway on a store in a folder, with more lines of configuration, and access rules if there are any.

    ``core`` is where it runs, None: on any. ``port`` is where it listens, 0: at any free port.
    """
    port = port or free_port()
    config = folder / "gateway.toml"
    if rules:
        (folder / "rules").write_text(rules)
    acl = 'acl = "rules"' if rules else ""
    config.write_text(GATEWAY.format(name=name, acl=acl, port=port, interval_ms=interval_ms) + more)
    argv = [sys.executable, "-m", "tools.cli.main", "gateway", "run", "--config", str(config)]
    with _running(slowed(argv) if disk_is_slow else argv, port, folder, core) as broker:
        yield broker


@contextlib.contextmanager
def mosquitto(folder: Path, autosave: bool = False, *, core: int = BROKER_CORE, more: str = "") -> Iterator[Broker]:
    """Runs mosquitto, in memory or with a store that it writes on every change, with more lines of configuration.

    Raises BenchUnavailable.
    """
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None:
        raise BenchUnavailable("mosquitto is not installed (apt install mosquitto)")
    port = free_port()
    config = folder / "mosquitto.conf"
    text = MOSQUITTO.format(port=port) + (AUTOSAVE.format(folder=folder) if autosave else "persistence false\n")
    if os.geteuid() == 0:
        text += "user root\n"  # otherwise it changes to another user, which cannot write its store
    config.write_text(text + more)
    with _running([program, "-c", str(config)], port, folder, core) as broker:
        yield broker


@contextlib.contextmanager
def lander(folder: Path, broker: Broker, topic_filter: str, landing: Path) -> Iterator[Program]:
    """A lander that writes what comes from a broker to landing files. Raises BenchUnavailable."""
    argv = [sys.executable, "-m", "tools.cli.main", "lander", "run", "--name", "bench", "--group", "bench"]
    argv += ["--broker", f"mqtt://127.0.0.1:{broker.port}", "--filter", topic_filter, "--landing", str(landing)]
    argv += ["--roll-seconds", "1"]
    process = Process("a lander", _pinned(argv, GENERATOR_CORE), folder / "lander-output", _environment())
    process.start()
    try:
        process.says("subscribed")
        yield Program(process.pid)
    except ProcessFailed as failure:
        raise BenchUnavailable(str(failure)) from failure
    finally:
        process.stop()


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """Keeps this process on a core. Programs are started before it."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[core]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextlib.contextmanager
def bare_server(folder: Path) -> Iterator[Broker]:
    """Runs a server that only acknowledges, to measure the generator's own limit."""
    port = free_port()
    with _running([sys.executable, "-m", "tools.lab.bench.broker.bare", str(port)], port, folder) as broker:
        yield broker


def load(broker: Broker, **task: Any) -> dict[str, Any]:
    """Runs the generator against a broker; returns what it measured. Raises BenchUnavailable."""
    text = json.dumps(asdict(Task(port=broker.port, broker=broker.pid, **task)))
    argv = [sys.executable, "-m", "tools.lab.bench.broker.load", text]
    done = subprocess.run(
        _pinned(argv, GENERATOR_CORE),
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=LOAD_DEADLINE_S,
        check=False,
    )
    if done.returncode:
        raise BenchUnavailable(f"the generator failed: {done.stderr.strip().splitlines()[-1:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def slow_sync_s(folder: Path) -> float:
    """Returns how long a sync takes on the slow disk of a gateway, in seconds."""
    argv = _pinned(slowed([sys.executable, "-m", "tools.lab.bench.broker.disk", str(folder)]), BROKER_CORE)
    return float(subprocess.run(argv, env=_environment(), capture_output=True, text=True, check=True).stdout)


class Generator:
    """Runs the generator, and remembers the highest processor load that it had with the broker ``subject``."""

    def __init__(self, subject: Broker) -> None:
        self._subject = subject
        self._busiest = 0.0

    def load(self, broker: Broker, **task: Any) -> dict[str, Any]:
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
def _running(argv: list[str], port: int, folder: Path, core: int | None = BROKER_CORE) -> Iterator[Broker]:
    process = Process("a broker", _pinned(argv, core), folder / "output", _environment())
    process.start()
    try:
        process.listens(port)
        yield Broker(port, process.pid)
    except ProcessFailed as failure:
        raise BenchUnavailable(str(failure)) from failure
    finally:
        process.stop()


def _pinned(argv: list[str], core: int | None) -> list[str]:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchUnavailable("two cores are needed, one for the broker and one for the generator")
    return argv if core is None else ["taskset", "-c", str(cores[core]), *argv]


def _environment() -> dict[str, str]:
    environment = {**os.environ, "PYTHONPATH": str(source_root())}
    if environment.pop("PYTHONDONTWRITEBYTECODE", ""):  # then each start would compile all modules again
        environment["PYTHONPYCACHEPREFIX"] = _bytecode().name
    return environment


@functools.cache
def _bytecode() -> tempfile.TemporaryDirectory[str]:
    """Makes the folder of the modules that this run's programs have compiled; it is removed when the run ends."""
    return tempfile.TemporaryDirectory(prefix="holdfast-bytecode-")
