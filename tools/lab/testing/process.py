"""One process: it is started, waited for until it is ready, killed, and started again; its output is kept."""

import asyncio
import contextlib
import functools
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tools.cli.paths import source_root

START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 15.0
LAST_LINES = 12
MAIN = "tools.cli.main"


class ProcessFailed(Exception):
    """A process ended or did not become ready; the text holds its last lines."""


class Process:
    """A command that can be started, killed and started again.

    All methods block but `up`, `down` and `to_end`. In an event loop call the slow ones with `asyncio.to_thread`, but
    not `start`: the kernel ends the process when the thread that started it ends.

    Args:
        name: what error texts call it.
        argv: the command. Python finds this repository's modules from every folder.
        log: file to which its output is appended; None for none.
        environment: variables on top of this process's own.
        ready: what is in the line by which it says that it is ready, or the TCP port of the loopback address on which
            it then listens.
        folder: the current folder of the command; None: that of this process.

    Attributes:
        lines: what it has printed since its last start, both streams, without the ends of the lines.
        kills: how often `kill` was called.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path | None = None,
        environment: dict[str, str] | None = None,
        ready: str | int = "",
        folder: Path | None = None,
    ) -> None:
        self.name = name
        self.lines: list[str] = []
        self.kills = 0
        self._argv = [*_die_with_parent(), *argv]
        self._log = log
        self._environment = {**_environment(), **(environment or {})}
        self._ready = ready
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._has_closed = True
        self._news = threading.Condition()

    def start(self) -> None:
        """Starts it in a session of its own, so that the terminal's Ctrl-C does not reach it."""
        self.lines = []
        self._has_closed = False
        self._process = subprocess.Popen(
            self._argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment,
            cwd=self._folder,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout, self.lines), daemon=True)
        self._reader.start()

    async def up(self) -> None:
        """Starts it; returns when it is ready. Raises ProcessFailed."""
        self.start()
        await asyncio.to_thread(self.wait_ready)

    async def down(self) -> None:
        """The same as `stop`."""
        await asyncio.to_thread(self.stop)

    async def to_end(self, deadline_s: float | None = None) -> tuple[int, list[str]]:
        """Starts it and waits for its end, as `ended` does; stops it where that is not waited for."""
        self.start()
        try:
            return await asyncio.to_thread(self.ended, deadline_s)
        finally:
            self.stop()

    def wait_ready(self) -> None:
        """Returns when it is ready. Raises ProcessFailed if it ends, or a minute passes, before that."""
        if isinstance(self._ready, int):
            self.listens(self._ready)
        elif self._ready:
            self.says(self._ready)

    def says(self, text: str, deadline_s: float = START_DEADLINE_S) -> str:
        """Waits for a line that holds ``text`` and returns it. Raises ProcessFailed if the process ends, or the
        deadline passes, without that line."""
        with self._news:
            self._news.wait_for(lambda: self._find(text) is not None or self._is_silent, deadline_s)
            if (line := self._find(text)) is not None:
                return line
            if self._is_silent:
                raise ProcessFailed(f"{self.name} ended without saying {text!r}{self._last_words()}")
        raise ProcessFailed(f"{self.name} did not say {text!r} in {deadline_s:g} s{self._last_words()}")

    def listens(self, port: int, deadline_s: float = START_DEADLINE_S) -> None:
        """Waits until it takes connections on a TCP port of the loopback address. Raises ProcessFailed if it ends, or
        the deadline passes, before that."""
        deadline = time.monotonic() + deadline_s
        while not _is_listening(port):
            if not self.running or time.monotonic() > deadline:
                raise ProcessFailed(f"{self.name} does not listen on port {port}{self._last_words()}")
            time.sleep(0.005)

    def ended(self, deadline_s: float | None = None) -> tuple[int, list[str]]:
        """Waits for its end; returns its exit code and its lines. Raises subprocess.TimeoutExpired if it still runs at
        the deadline."""
        assert self._process is not None and self._reader is not None
        code = self._process.wait(deadline_s)
        self._reader.join()
        return code, self.lines

    def kill(self) -> None:
        """Sends SIGKILL and waits for its end; without effect where it has ended."""
        self.kills += 1
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self.ended()

    def stop(self) -> None:
        """Sends SIGTERM, and SIGKILL where that does not end it in 15 s; without effect where it has ended."""
        self.signal(signal.SIGTERM)
        if self._process is not None:
            try:
                self.ended(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal; without effect where it has ended or was never started."""
        if self._process is not None:
            self._process.send_signal(number)

    def freeze(self) -> None:
        """Lets it stand still (SIGSTOP)."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets it go on."""
        self.signal(signal.SIGCONT)

    def limit_files(self, size: int) -> None:
        """Lets none of its files grow beyond `size` bytes, as if its disk were full; -1: any may. Without effect where
        it has ended."""
        with contextlib.suppress(ProcessLookupError):
            if self.running:
                resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (size, -1))

    def status(self, key: str) -> int:
        """Returns a number of /proc/PID/status; memory is in kB. Raises OSError if it has ended."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1])
        raise ProcessLookupError(f"{self.name} has ended")

    def io(self, key: str) -> int:
        """Returns a counter of its /proc/PID/io, in bytes or calls. Raises KeyError, OSError."""
        return process_io(self.pid, key)

    def cpu_s(self) -> float:
        """Returns the processor time used so far, in seconds. Raises OSError."""
        return process_cpu_s(self.pid)

    @property
    def pid(self) -> int:
        """The number of the process that was started last."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def _is_silent(self) -> bool:
        """Whether all that it prints has been read."""
        return self._has_closed

    def _find(self, text: str) -> str | None:
        return next((line for line in self.lines if text in line), None)

    def _read(self, output: IO[bytes], lines: list[str]) -> None:
        log = None if self._log is None else self._log.open("ab")
        with output:
            for line in output:
                if log is not None:
                    log.write(line)
                    log.flush()
                with self._news:
                    lines.append(line.decode(errors="replace").rstrip("\n"))
                    self._news.notify_all()
        if log is not None:
            log.close()
        with self._news:
            self._has_closed = True
            self._news.notify_all()

    def _last_words(self) -> str:
        return "".join(f"\n  | {line}" for line in self.lines[-LAST_LINES:]) or "; it printed nothing"


class Server(Process):
    """A process that listens on a TCP port of the loopback address, which it keeps over restarts."""

    port: int

    async def interrupt(self) -> None:
        """Ends it, as hard as it can be without the loss of what it has acknowledged, and starts it again."""
        raise NotImplementedError


def holdfast(*arguments: str) -> list[str]:
    """Returns the command `holdfast` with these arguments, of this Python and this repository."""
    return python(MAIN, *arguments)


def python(module: str, *arguments: str) -> list[str]:
    """Returns the command that runs a module."""
    return [sys.executable, "-m", module, *arguments]


def process_io(pid: int, key: str) -> int:
    """A counter of /proc/PID/io, in bytes or calls. Raises KeyError and OSError."""
    text = Path(f"/proc/{pid}/io").read_text()
    return int(dict(line.split(": ") for line in text.splitlines())[key])


def process_cpu_s(pid: int) -> float:
    """The processor time that a process has used so far, with the kernel's part, in seconds. Raises OSError."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _environment() -> dict[str, str]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(source_root())}
    if environment.pop("PYTHONDONTWRITEBYTECODE", ""):  # then each start would compile all modules again
        environment["PYTHONPYCACHEPREFIX"] = _bytecode().name
    return environment


@functools.cache
def _bytecode() -> tempfile.TemporaryDirectory[str]:
    """Makes the folder of the modules that this process's programs have compiled; it is removed with this process."""
    return tempfile.TemporaryDirectory(prefix="holdfast-bytecode-")


def _is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _die_with_parent() -> list[str]:
    """Returns a prefix after which the kernel kills the command when this process ends without ending it."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []
