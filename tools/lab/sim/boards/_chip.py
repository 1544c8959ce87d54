"""What of a simulated chip outlives its program: a folder, named by the environment, which `tools.sim.board` powers.

Without one everything is in this process's memory, as drivers' tests want it.
"""

import os
import sys

FOLDER = os.getenv("HOLDFAST_BOARD")
SECTOR_SIZE = 4096
SLEEPS, RESETS = 64, 65  # exit codes by which a program hands the chip over
PWRON_RESET, HARD_RESET, WDT_RESET, DEEPSLEEP_RESET, SOFT_RESET = 1, 2, 3, 4, 5


def read(name: str) -> str:
    """A fact about the chip's surroundings, which may change at any time."""
    try:
        with open(f"{FOLDER}/{name}") as file:
            return file.read().strip()
    except OSError:
        return ""


def write(name: str, content: bytes) -> None:
    with open(f"{FOLDER}/{name}", "wb") as file:
        file.write(content)


def add(name: str, content: bytes) -> None:
    """Behind what a file has, where there is a folder."""
    if FOLDER:
        with open(f"{FOLDER}/{name}", "ab") as file:
            file.write(content)


def memory(name: str, size: int):
    """Flash: slices of it are read and set. It begins erased."""
    return Cells(f"{FOLDER}/{name}", size) if FOLDER else bytearray(b"\xff" * size)


class Cells:
    """Flash cells on a file."""

    def __init__(self, path: str, size: int) -> None:
        try:
            self._file = open(path, "r+b", 0)  # noqa: SIM115 - open as long as the chip has power
        except OSError:
            self._file = open(path, "w+b", 0)  # noqa: SIM115
            for _ in range(size // SECTOR_SIZE):
                self._file.write(b"\xff" * SECTOR_SIZE)

    def __getitem__(self, span: slice) -> bytes:
        self._file.seek(span.start)
        return self._file.read(span.stop - span.start)

    def __setitem__(self, span: slice, content: bytes) -> None:
        self._file.seek(span.start)
        self._file.write(content)


def program(cells, start: int, content) -> None:
    """A program only clears bits."""
    before = cells[start : start + len(content)]
    cells[start : start + len(content)] = bytes(before[at] & content[at] for at in range(len(content)))


def function(name: str, result: str, arguments: str):
    """Of the C library, on MicroPython."""
    import ffi

    return ffi.open(None).func(result, name, arguments)


def leave(code: int) -> None:
    """The program is gone at once, with all that it would have tidied up."""
    if sys.implementation.name == "micropython":
        function("_exit", "v", "i")(code)
    os._exit(code)
