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
TWICE_S = 0.05  # a second Ctrl-C this soon is the first one again; the unix port ends at a second one
CHUNK_BYTES = 1024
LOCAL_FLAGS, ISIG = 3, termios.ISIG


class Vm:
    """A process of the board's program.

    Args:
        folder: the chip's state, as `tools.lab.sim.boards` has it.
        heap: the size of MicroPython's heap, as its option `-X heapsize` takes it. The simulated modules use it too.
    """

    def __init__(self, micropython: MicroPython, folder: Path, platform: str, heap: str) -> None:
        self._folder = folder
        self._command = [*micropython.argv, "-X", f"heapsize={heap}", str(FIRMWARE / "power_up.py"), platform]
        self._environment = {
            **micropython.environment(),
            "HOLDFAST_BOARD": str(folder),
            "MICROPYPATH": f"{FIRMWARE}:{SHIM}:.frozen",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._master = -1
        self._last_ctrl_c = 0.0

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

    def type(self, content: bytes) -> None:
        """Gives bytes to the program's console; what it does not read before its buffer is full is lost."""
        if self._is_executing and CTRL_C in content:
            now = time.monotonic()
            is_again = now - self._last_ctrl_c < TWICE_S
            self._last_ctrl_c = now
            first, _, rest = content.partition(CTRL_C)
            content = first + (b"" if is_again else CTRL_C) + rest.replace(CTRL_C, b"")
        with contextlib.suppress(OSError):
            os.write(self._master, content)

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
