"""A gateway that runs as a process, with the command that an operator types."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.house.repository import ROOT
from tests.support.command import holdfast
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process

LONG_S = 20.0
HOLDFAST = (sys.executable, "-m", "tools.cli.main")


class Gateway:
    """A running gateway; ``config`` stands before its own tables."""

    def __init__(self, folder: Path, config: str = "", listener: str = "", name: str = "garage") -> None:
        self.port = free_port()
        self.path = folder / "gateway.toml"
        self.path.write_text(
            f'name = "{name}"\n{config}\n[log]\nformat = "json"\n'
            f'[store]\npath = "store"\nvolatile = true\n[[listener]]\nkind = "tcp"\nport = {self.port}\n{listener}'
        )
        self._process: Process

    @contextmanager
    def running(self, *wrapper: str) -> Iterator[Process]:
        argv = [*wrapper, *HOLDFAST, "gateway", "run", "--config", str(self.path)]
        self._process = Process("gateway", argv)
        self._process.start()
        try:
            self.wait_for_event("ready")
            yield self._process
        finally:
            self._process.kill()

    def wait_for_event(self, part: str) -> dict[str, str]:
        """The first line of the log with this in its event; fails at once where the process ends without it."""
        line = self._process.says(part, LONG_S)
        entry: dict[str, str] = json.loads(line)
        assert part in entry["event"], line
        return entry

    def log(self) -> list[dict[str, str]]:
        """All that it has printed."""
        return [json.loads(line) for line in self._process.lines]


class Watched(Gateway):
    """A gateway with metrics and health, whose libraries take a third of a start's time."""

    def __init__(self, folder: Path, config: str = "", listener: str = "", name: str = "garage") -> None:
        self.metrics_port = free_port()
        super().__init__(folder, f"{config}\n[metrics]\nport = {self.metrics_port}", listener, name)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}{path}", timeout=LONG_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


def publish(port: int, *arguments: str) -> int:
    """Publishes one message with mosquitto_pub; returns its exit code."""
    command = ["mosquitto_pub", "-V", "5", "-p", str(port), "-t", "a", "-q", "1", "-m", "hello", *arguments]
    return subprocess.run(command, stderr=subprocess.DEVNULL, timeout=LONG_S, check=False).returncode


def check(*arguments: str, wrapper: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    argv = [*wrapper, *HOLDFAST, *arguments]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def refused(*arguments: str) -> str:
    """What a command says that ends with 2."""
    done = holdfast(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    return done.stderr


def refused_start(config: Path, *, wrapper: tuple[str, ...] = (), code: int = 2) -> str:
    """What the process of a gateway says that ends with a code before it is ready."""
    done = check("gateway", "run", "--config", str(config), wrapper=wrapper)
    assert (done.returncode, done.stdout) == (code, "")
    return done.stderr
