"""The state of a simulated chip that stays when its program ends: files in a folder.

The environment variable HOLDFAST_BOARD names the folder, and `tools.lab.sim.board` switches the chip's power. Without
the variable the state is in this process's memory, as the tests of drivers need it.
"""

import os
import sys

FOLDER = os.getenv("HOLDFAST_BOARD")
SECTOR_SIZE = 4096
# Exit codes of a program: the chip sleeps, is reset, starts MicroPython anew (in the raw REPL), or its ROM's loader.
SLEEPS, RESETS, RESTARTS, RESTARTS_RAW, LOADS = 64, 65, 66, 67, 68
PWRON_RESET, HARD_RESET, WDT_RESET, DEEPSLEEP_RESET, SOFT_RESET = 1, 2, 3, 4, 5
HOST: list = [open]  # how the folder's files are opened


def keep_files_of_the_host() -> None:
    """Lets this module find the folder's files also when the board's own file system is mounted over the host's."""
    import vfs

    files = vfs.VfsPosix("/")
    HOST[0] = lambda path, mode, buffering=0: files.open(path, mode)


def read(name: str) -> str:
    """Returns the content of a file that describes the chip's surroundings; the test may change it at any time."""
    try:
        with HOST[0](f"{FOLDER}/{name}", "r") as file:
            return file.read().strip()
    except OSError:
        return ""


def write(name: str, content: bytes) -> None:
    with HOST[0](f"{FOLDER}/{name}", "wb") as file:
        file.write(content)


def add(name: str, content: bytes) -> None:
    """Appends to a file, if there is a folder."""
    if FOLDER:
        with HOST[0](f"{FOLDER}/{name}", "ab") as file:
            file.write(content)


def memory(name: str, size: int):
    """Returns flash of `size` bytes, erased at first; slices of it are read and set."""
    return Cells(f"{FOLDER}/{name}", size) if FOLDER else bytearray(b"\xff" * size)


class Cells:
    """Flash cells in a file."""

    def __init__(self, path: str, size: int) -> None:
        try:
            self._file = HOST[0](path, "r+b", 0)  # it stays open while the chip has power
        except OSError:
            self._file = HOST[0](path, "w+b", 0)
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
