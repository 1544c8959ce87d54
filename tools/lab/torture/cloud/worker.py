"""A process of a site: it reads an order a line, and writes an answer for each."""

import re
import select
import signal
import subprocess
import sys
from pathlib import Path

from tools.cli.paths import source_root


class WorkerFailed(Exception):
    """A process of a site has ended by itself. The text has its last line."""


class Worker:
    """A module of this folder that runs in a process of its own, from the first order on. Its errors are in a log."""

    def __init__(self, name: str, module: str, arguments: list[str], folder: Path) -> None:
        """folder: for the log."""
        self._name = name
        self._command = [sys.executable, "-m", f"tools.lab.torture.cloud.{module}", *arguments]
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[str] | None = None

    def start(self, ready: bool = False) -> None:
        """Starts the process, unless it runs. ready: waits for its first line. Raises WorkerFailed."""
        if self._process is not None:
            return
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=source_root(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        if ready and self.hear() is None:
            raise WorkerFailed(f"the {self._name} was killed while it started")

    def tell(self, order: str) -> None:
        """Gives an order to the process, which runs."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()

    def hear(self) -> str | None:
        """Waits for the next line, and returns it; None where the process was killed. Raises WorkerFailed."""
        assert self._process is not None and self._process.stdout is not None
        if line := self._process.stdout.readline():
            return line
        process, self._process = self._process, None
        process.communicate()
        if process.returncode != -signal.SIGKILL:
            raise WorkerFailed(f"the {self._name}: {self._last_line()}")
        return None

    def has_answered(self) -> bool:
        """Whether `hear` returns at once."""
        assert self._process is not None and self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def end(self) -> None:
        """Kills the process, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _last_line(self) -> str:
        """Returns the line of the log that names the last error, else the last line."""
        lines = self._log.read_text().strip().splitlines() or ["it said nothing"]
        return next(
            (line for line in reversed(lines) if re.match(r"[\w.]+(Error|Exception|Failed|Lost)\b", line)), lines[-1]
        )
