"""One process of the demo, its output and its end."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections import deque
from pathlib import Path

STOP_DEADLINE_S = 15.0
LAST_LINES = 12


class ProcessFailed(Exception):
    """A process of the demo ended or stayed silent where it should not have; the text holds its last lines."""


class Process:
    """A command that can be started, killed and started again; what it prints is kept in a log file.

    Args:
        name: what the demo calls it.
        argv: the command.
        log: where its output is appended.
        environment: variables on top of the demo's own.
    """

    def __init__(self, name: str, argv: list[str], log: Path, environment: dict[str, str] | None = None) -> None:
        self.name = name
        self._argv = _die_with_parent() + argv
        self._log = log
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._lines: list[str] = []
        self._news = asyncio.Event()

    async def start(self) -> None:
        """Starts it; a session of its own keeps the terminal's Ctrl-C away, so that the demo ends things in order."""
        self._lines.clear()
        self._process = await asyncio.create_subprocess_exec(
            *self._argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._environment,
            start_new_session=True,
        )
        self._reader = asyncio.create_task(self._read(self._process))

    async def says(self, text: str, deadline_s: float = 30.0) -> str:
        """Waits for a line that holds ``text`` and returns it.

        Raises:
            ProcessFailed: the process ended, or the deadline passed, without that line.
        """
        try:
            async with asyncio.timeout(deadline_s):
                while True:
                    for line in self._lines:
                        if text in line:
                            return line
                    if self._reader is None or self._reader.done():
                        raise ProcessFailed(f"{self.name} ended without saying {text!r}{self._last_words()}")
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise ProcessFailed(f"{self.name} did not say {text!r} in {deadline_s:g} s{self._last_words()}") from None

    async def ended(self) -> tuple[int, list[str]]:
        """Waits for its end and returns its exit code and the lines it printed."""
        assert self._process is not None and self._reader is not None
        await self._reader
        return await self._process.wait(), self._lines

    async def kill(self) -> None:
        """SIGKILL: nothing in it gets a chance to tidy up."""
        await self._signal(signal.SIGKILL)

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL where that does not end it in time."""
        try:
            async with asyncio.timeout(STOP_DEADLINE_S):
                await self._signal(signal.SIGTERM)
        except TimeoutError:
            await self.kill()

    @property
    def pid(self) -> int:
        """The number of the process that was started last."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def _signal(self, number: signal.Signals) -> None:
        if self._process is None or self._reader is None:
            return
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)  # asyncio's own looks first whether it has ended, and hides its code
        await self._process.wait()
        await self._reader

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        with self._log.open("ab") as log:
            async for line in process.stdout:
                log.write(line)
                log.flush()
                self._lines.append(line.decode(errors="replace").rstrip("\n"))
                self._news.set()
        self._news.set()

    def _last_words(self) -> str:
        last = deque(self._lines, maxlen=LAST_LINES)
        return "".join(f"\n  | {line}" for line in last) or "; it printed nothing"


def _die_with_parent() -> list[str]:
    """A prefix after which the kernel ends the command when the demo is killed and cannot end it itself."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []
