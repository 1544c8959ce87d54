"""The brokers that are measured, each in a process of its own on one core; the generator has the other."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools import proc
from tools.bench.broker_load import Task
from tools.bench.figure import Figure
from tools.bench.slow_disk import slowed
from tools.paths import source_root
from tools.sim.mosquitto import free_port

BROKER_CORE, GENERATOR_CORE = 0, 1
START_DEADLINE_S = 60.0
LOAD_DEADLINE_S = 900.0
BUSY_MAX = 0.9  # of its core; beyond it the generator is what is measured

GATEWAY = """\
name = "bench"
[store]
path = "store"
commit_interval_ms = {interval_ms}
[limits]
kept_bytes = 1_000_000_000
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


class Broker:
    """A broker that runs: its port and its process."""

    def __init__(self, port: int, process: "subprocess.Popen[bytes]") -> None:
        self.port = port
        self.process = process

    def status(self, key: str) -> int:
        """A number of /proc/PID/status, in kB where it is one of memory."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1])
        raise KeyError(key)

    def io(self, key: str) -> int:
        """A counter of /proc/PID/io."""
        return proc.io(self.process.pid, key)

    def cpu_s(self) -> float:
        """Processor time used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def gateway(folder: Path, interval_ms: int = 0, *, disk_is_slow: bool = False) -> Iterator[Broker]:
    """Our gateway on a store in a folder."""
    port = free_port()
    config = folder / "gateway.toml"
    config.write_text(GATEWAY.format(port=port, interval_ms=interval_ms))
    argv = [sys.executable, "-m", "tools.cli", "gateway", "run", "--config", str(config)]
    with _running(slowed(argv) if disk_is_slow else argv, port, folder) as broker:
        yield broker


@contextlib.contextmanager
def mosquitto(folder: Path, autosave: bool = False) -> Iterator[Broker]:
    """mosquitto in memory, or writing its store on every change. Raises BenchUnavailable."""
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None:
        raise BenchUnavailable("mosquitto is not installed (apt install mosquitto)")
    port = free_port()
    config = folder / "mosquitto.conf"
    text = MOSQUITTO.format(port=port) + (AUTOSAVE.format(folder=folder) if autosave else "persistence false\n")
    if os.geteuid() == 0:
        text += "user root\n"  # else it takes another user's rights and cannot write its store
    config.write_text(text)
    with _running([program, "-c", str(config)], port, folder) as broker:
        yield broker


@contextlib.contextmanager
def bare_server(folder: Path) -> Iterator[Broker]:
    """A server that acknowledges and does nothing else: what the generator itself can do at most."""
    port = free_port()
    with _running([sys.executable, "-m", "tools.bench.broker_bare", str(port)], port, folder) as broker:
        yield broker


def load(broker: Broker, **task: Any) -> dict[str, Any]:
    """Runs the generator against a broker; returns what it measured. Raises BenchUnavailable."""
    argv = [sys.executable, "-m", "tools.bench.broker_load", json.dumps(asdict(Task(port=broker.port, **task)))]
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
    """How long a sync takes on the disk of a gateway whose disk is slow."""
    argv = _pinned(slowed([sys.executable, "-m", "tools.bench.disk", str(folder)]), BROKER_CORE)
    return float(subprocess.run(argv, env=_environment(), capture_output=True, text=True, check=True).stdout)


class Generator:
    """Runs the generator, and remembers how busy it was at most with one of the brokers.

    Args:
        subject: that broker.
    """

    def __init__(self, subject: Broker) -> None:
        self._subject = subject
        self._busiest = 0.0

    def load(self, broker: Broker, **task: Any) -> dict[str, Any]:
        """The same as ``load``; BenchUnavailable also where nothing came through."""
        result = load(broker, **task)
        if not result["rate"]:
            raise BenchUnavailable("no message came through in time; --seconds gives more")
        if broker is self._subject:
            self._busiest = max(self._busiest, result["generator_cpu"])
        return result

    def figure(self) -> Figure:
        """Whether it had time left."""
        return Figure("the generator, when it was busiest", "of a core", self._busiest, None, BUSY_MAX, at_most=True)


@contextlib.contextmanager
def _running(argv: list[str], port: int, folder: Path) -> Iterator[Broker]:
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(_pinned(argv, BROKER_CORE), env=_environment(), stdout=output, stderr=output)
    try:
        broker = Broker(port, process)
        _wait_for(broker, folder / "output")
        yield broker
    finally:
        process.terminate()
        process.wait()


def _pinned(argv: list[str], core: int) -> list[str]:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchUnavailable("two cores are needed, one for the broker and one for the generator")
    return ["taskset", "-c", str(cores[core]), *argv]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(source_root())}


def _wait_for(broker: Broker, output: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline and broker.process.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", broker.port), timeout=1).close()
            return
        time.sleep(0.002)
    raise BenchUnavailable(f"a broker did not start: {output.read_text(errors='replace')[-500:]}")
