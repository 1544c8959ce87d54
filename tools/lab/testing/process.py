"""One process: it is started, waited for until it is ready, killed, and started again; its output is kept."""

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import IO

START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 15.0
LAST_LINES = 12


class ProcessFailed(Exception):
    """A process ended or did not become ready; the text holds its last lines."""


class Process:
    """A command that can be started, killed and started again.

    All methods block. In an event loop call the slow ones with `asyncio.to_thread`, but not `start`: the
    kernel ends the process when the thread that started it ends.

    Args:
        name: what error texts call it.
        argv: the command.
        log: file to which its output is appended; None for none.
        environment: variables on top of this process's own.

    Attributes:
        lines: what it has printed since its last start, both streams, without the ends of the lines.
    """

    def __init__(
        self, name: str, argv: list[str], log: Path | None = None, environment: dict[str, str] | None = None
    ) -> None:
        self.name = name
        self.lines: list[str] = []
        self._argv = _die_with_parent() + argv
        self._log = log
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
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
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout, self.lines), daemon=True)
        self._reader.start()

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


def process_io(pid: int, key: str) -> int:
    """A counter of /proc/PID/io, in bytes or calls. Raises KeyError and OSError."""
    text = Path(f"/proc/{pid}/io").read_text()
    return int(dict(line.split(": ") for line in text.splitlines())[key])


def process_times_s(pid: int) -> tuple[float, float]:
    """The processor time that a process has used so far, in seconds: by itself, and by the kernel. Raises OSError."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    tick = os.sysconf("SC_CLK_TCK")
    return int(fields[11]) / tick, int(fields[12]) / tick


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
