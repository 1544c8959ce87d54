"""The program of a simulated board: a real MicroPython in a process, whose console is a terminal inside the board."""

import asyncio
import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import termios
import time
import tty
from collections.abc import Awaitable, Callable
from pathlib import Path

from tools.cli.paths import source_root
from tools.lab.micropython import MicroPython

SHIM = source_root() / "tools/lab/sim/boards"
FIRMWARE = source_root() / "tools/lab/sim/firmware"
PR_SET_PDEATHSIG = 1
CTRL_C = b"\x03"
BUSY_S, ENDS_S, LOOK_AGAIN_S = 1.0, 1.0, 0.001
STOPPED_OR_ENDED = "TZX"
CHUNK_BYTES = 1024
LOCAL_FLAGS, ISIG = 3, termios.ISIG


class Vm:
    """A process of the board's program.

    Args:
        folder: the chip's state, as `tools.lab.sim.boards` has it.
        heap: the size of MicroPython's heap, as its option `-X heapsize` takes it. The simulated modules use it too.
    """

    def __init__(self, micropython: MicroPython, folder: Path, platform: str, heap: str) -> None:
        self._folder = folder.resolve()
        self._command = [*micropython.argv, "-X", f"heapsize={heap}", str(FIRMWARE / "power_up.py"), platform]
        self._environment = {
            **micropython.environment(),
            "HOLDFAST_BOARD": str(self._folder),
            "MICROPYPATH": f"{FIRMWARE}:{SHIM}:.frozen",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._master = -1

    def power_on(self, *arguments: str) -> None:
        """Starts the program; the arguments are what `power_up` takes."""
        self._master, slave = os.openpty()
        tty.setraw(slave)
        os.set_blocking(self._master, False)
        board = os.getpid()
        self._process = subprocess.Popen(
            [*self._command, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=self._environment,
            cwd=self._folder,
            start_new_session=True,
            preexec_fn=lambda: _begin(board),
        )
        os.close(slave)

    def power_off(self) -> None:
        """Ends the program at once; without effect where none runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            os.close(self._master)

    async def run(self, send: Callable[[bytes], Awaitable[None]]) -> int:
        """Sends what the program prints until it ends; returns its exit code, negative for a signal."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._master, ready.set)
        try:
            while True:
                await ready.wait()
                ready.clear()
                try:
                    while content := os.read(self._master, CHUNK_BYTES):
                        await send(content)
                except BlockingIOError:
                    continue
                except OSError:  # the program has ended
                    break
        finally:
            loop.remove_reader(self._master)
        assert self._process is not None
        code = await asyncio.to_thread(self._process.wait)
        self.power_off()
        return code

    async def type(self, content: bytes) -> None:
        """Gives bytes to the program's console; what it does not read before its buffer is full is lost."""
        *parts, last = content.split(CTRL_C)
        for part in parts:
            self._write(part)
            if not await self._interrupt():
                self._write(CTRL_C)
        self._write(last)

    def _write(self, content: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._master, content)

    async def _interrupt(self) -> bool:
        """Interrupts the program if Ctrl-C does so now, rather than being read by it; returns whether it does.

        The unix port raises KeyboardInterrupt out of its signal handler, also out of an allocation, whose lock then
        stays closed for ever. A board raises it between two steps of the program. So the signal is sent while the
        program is in a system call, where it does not allocate; or at once where it makes none for a second.
        """
        busy_until_s = time.monotonic() + BUSY_S
        while (process := self._process) is not None:
            process.send_signal(signal.SIGSTOP)
            try:
                await _stopped(process.pid)
                if not self._is_executing:
                    return False
                if is_sent := _is_in_system_call(process.pid) or time.monotonic() > busy_until_s:
                    process.send_signal(signal.SIGINT)
            finally:
                process.send_signal(signal.SIGCONT)
            if is_sent:
                await self._console_is_back()
                return True
            await asyncio.sleep(LOOK_AGAIN_S)
        return True

    async def _console_is_back(self) -> None:
        """Returns when the interrupted program has ended, or seems to go on: before, a second interrupt would end the
        console."""
        end_s = time.monotonic() + ENDS_S
        while self._is_executing and time.monotonic() < end_s:
            await asyncio.sleep(LOOK_AGAIN_S)

    @property
    def _is_executing(self) -> bool:
        """Whether Ctrl-C interrupts the program now, rather than being read by it."""
        try:
            return bool(termios.tcgetattr(self._master)[LOCAL_FLAGS] & ISIG)
        except termios.error:
            return False


def _begin(board: int) -> None:
    """In the new process: the terminal on its standard input controls it, and it ends with the board's process."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != board:
        os.kill(os.getpid(), signal.SIGKILL)


async def _stopped(pid: int) -> None:
    """Returns when the process does not run any more."""
    while _state(pid) not in STOPPED_OR_ENDED:
        await asyncio.sleep(0)


def _state(pid: int) -> str:
    """The state's letter (proc_pid_stat(5)); X for a process that is not there."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def _is_in_system_call(pid: int) -> bool:
    """Whether a stopped process was stopped in a system call (proc_pid_syscall(5))."""
    try:
        return not Path(f"/proc/{pid}/syscall").read_text().startswith(("-1", "running"))
    except OSError:
        return False
