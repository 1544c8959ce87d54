"""The state of a simulated chip that stays when its program ends: files in a folder.

The environment variable HOLDFAST_BOARD names the folder, and `tools.lab.sim.board` switches the chip's power. Without
the variable the state is in this process's memory, as the tests of drivers need it.
"""

import os
import sys

FOLDER = os.getenv("HOLDFAST_BOARD")
SECTOR_SIZE = 4096
SLEEPS, RESETS = 64, 65  # exit codes of a program that resets the chip or lets it sleep
PWRON_RESET, HARD_RESET, WDT_RESET, DEEPSLEEP_RESET, SOFT_RESET = 1, 2, 3, 4, 5


def read(name: str) -> str:
    """Returns the content of a file that describes the chip's surroundings; the test may change it at any time."""
    try:
        with open(f"{FOLDER}/{name}") as file:
            return file.read().strip()
    except OSError:
        return ""


def write(name: str, content: bytes) -> None:
    with open(f"{FOLDER}/{name}", "wb") as file:
        file.write(content)


def add(name: str, content: bytes) -> None:
    """Appends to a file, if there is a folder."""
    if FOLDER:
        with open(f"{FOLDER}/{name}", "ab") as file:
            file.write(content)


def memory(name: str, size: int):
    """Returns flash of `size` bytes, erased at first; slices of it are read and set."""
    return Cells(f"{FOLDER}/{name}", size) if FOLDER else bytearray(b"\xff" * size)


class Cells:
    """Flash cells in a file."""

    def __init__(self, path: str, size: int) -> None:
        try:
            self._file = open(path, "r+b", 0)  # noqa: SIM115 - it stays open while the chip has power
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
    """Programs `content`: bits can change from 1 to 0 only."""
    before = cells[start : start + len(content)]
    cells[start : start + len(content)] = bytes(before[at] & content[at] for at in range(len(content)))


def function(name: str, result: str, arguments: str):
    """Returns a function of the C library, on MicroPython."""
    import ffi

    return ffi.open(None).func(result, name, arguments)


def leave(code: int) -> None:
    """Ends the program at once, without any cleanup."""
    if sys.implementation.name == "micropython":
        function("_exit", "v", "i")(code)
    os._exit(code)
