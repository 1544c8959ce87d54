"""A board maker's tool as a process: its output line by line, and its end."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.cli.board.errors import BoardError, Refused

WIDTH = 400  # columns, so that no line is broken
ENDS = re.compile(rb"[\r\n]")
LINES_TOLD = 3
FRAME = " \t.═╭╮╰╯─│"
MAY_BE = "the port is busy or doesn't exist"  # esptool says it of every port that it cannot open
NO_PORT = ("could not open", "no such file or directory", "no device found", "failed to access")
IN_USE = ("resource busy", "in use", "could not exclusively lock", "resource temporarily unavailable")


class ToolFailed(BoardError):
    """A tool ended with an error.

    Attributes:
        output: what it printed.
        is_late: whether it was ended because it took too long.
    """

    def __init__(self, text: str, output: str, is_late: bool = False) -> None:
        super().__init__(text)
        self.output, self.is_late = output, is_late


def run(
    words: Sequence[str],
    port: str,
    deadline_s: float,
    on_line: Callable[[str], object] = lambda _line: None,
    program: Sequence[str] = (sys.executable, "-P", "-m"),
) -> str:
    """Runs a tool with these words, by default `python -m WORDS…`, and returns what it printed.

    Python takes no module from the current folder, where another user may have put a `serial.py`.

    No secret may be in `words`: any user of the machine can read them.

    Args:
        port: the board's port, for the text of an error.
        deadline_s: the process is killed after this time, in seconds.
        on_line: called with each line as it comes.

    Raises:
        ToolFailed: it ended with another exit code than 0, or not in time.
        Refused: the port is not there, or another program uses it.
    """
    environment = {**os.environ, "COLUMNS": str(WIDTH), "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [*program, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
    )
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        process.kill()

    timer = threading.Timer(deadline_s, end)
    timer.start()
    try:
        output = _read(process, on_line)
        code = process.wait()
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    if is_late.is_set():
        raise ToolFailed(
            f"{port}: the board did not finish within {deadline_s:g} s{_told(output)}", output, is_late=True
        )
    if code:
        raise _failure(Path(words[0] if len(program) > 1 else program[0]).name, port, output)
    return output


def _read(process: "subprocess.Popen[bytes]", on_line: Callable[[str], object]) -> str:
    assert process.stdout is not None
    seen, rest = [], b""
    while content := os.read(process.stdout.fileno(), 65_536):
        *lines, rest = ENDS.split(rest + content)
        for line in lines:
            text = line.decode(errors="replace")
            seen.append(text)
            on_line(text)
    return "\n".join([*seen, rest.decode(errors="replace")])


def _failure(tool: str, port: str, output: str) -> ToolFailed | Refused:
    lower = output.lower().replace(MAY_BE, "")
    if any(text in lower for text in NO_PORT):
        if "permission denied" in lower or (os.path.exists(port) and not os.access(port, os.R_OK | os.W_OK)):
            return Refused(
                f"{port}: you may not use this port. On Linux, `sudo usermod -a -G dialout $USER` gives your user the "
                "right; then log in again"
            )
        if any(text in lower for text in IN_USE) and (os.path.exists(port) or "://" in port):
            return Refused(f"{port}: another program uses this port, such as a terminal; close it and try again")
        if not os.path.exists(port) and "://" not in port:
            return Refused(f"{port}: there is no such port; is the board plugged in?")
        return Refused(f"{port}: the port cannot be opened{_told(output)}")
    return ToolFailed(f"{port}: {tool} failed{_told(output)}", output)


def _told(output: str) -> str:
    """The last lines that say something."""
    lines = [line.strip(FRAME) for line in output.splitlines() if line.strip(FRAME)]
    return f": {' / '.join(lines[-LINES_TOLD:])}" if lines else ""
