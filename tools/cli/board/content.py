"""What goes into a board's file system."""

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from device.config import Config
from tools.cli.board.errors import Refused
from tools.cli.board.progress import Progress
from tools.cli.device.build import Board, compile_for_heap

MAIN = b'import device.main\n\ndevice.main.main("device.json")\n'
MAIN_OF_IMPROV = b"""import micropython

micropython.kbd_intr(-1)  # a browser speaks to a board that starts, and its packets have the byte of Ctrl-C
import device.console_main

device.console_main.main("device.json")
"""
CONFIG, MARK = "device.json", "holdfast.json"
MODULES = (".py", ".mpy")
OWN = {"boot.py", "main.py", CONFIG, f"{CONFIG}.failed", MARK, "lib"}
COMPILED: dict[Board, dict[str, bytes]] = {}
COMPILING = threading.Lock()  # on Python 3.11 two threads that parse at once fail (python/cpython, issue 106905)


def compiled(board: Board, progress: Progress | None = None) -> dict[str, bytes]:
    """Returns the compiled firmware, by its paths in `/lib`. It is compiled once, by one thread at a time.

    Args:
        progress: says so at once, and what it took: seconds to a minute, by the computer.
    """
    progress = progress or Progress(is_silent=True)
    with COMPILING:
        if board not in COMPILED:
            progress.say("compiling the firmware, which takes seconds to a minute")
            with progress.step("compiled the firmware"):
                COMPILED[board] = compile_for_heap(board)
        return COMPILED[board]


def board_files(
    config: Path, keys: Config, program: Mapping[str, bytes], given: Mapping[str, bytes] | None = None
) -> dict[str, bytes]:
    """Returns the content of each file by its path on the board: the firmware, the configuration, and the files of
    certificates and keys that `port` names, which lie beside it.

    Args:
        config: the file of the configuration.
        keys: what it says.
        program: the firmware's files by their paths in `/lib`.
        given: files in place of some at the configuration, and of the configuration itself.

    Raises:
        Refused: a file that the configuration names cannot be read.
    """
    files = {f"lib/{name}": content for name, content in program.items()}
    given = given or {}
    is_told = keys.field is not None and keys.field.improv
    files |= {"main.py": MAIN_OF_IMPROV if is_told else MAIN, CONFIG: given.get(CONFIG) or config.read_bytes()}
    for name in named_files(keys):
        if name in given:
            files[name] = given[name]
            continue
        files[name] = named_file(config, name)
    return {**files, MARK: _mark(files)}


def named_file(config: Path, name: str) -> bytes:
    """Returns the content of a file that the configuration names. Raises Refused: it cannot be read."""
    path = config.parent / name
    try:
        return path.read_bytes()
    except OSError as error:
        raise Refused(f"{config} names the file {name}, and {path} cannot be read: {error.strerror}") from error


def stale_files(there: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """Which files on a board are modules of an earlier firmware, or of one that was copied by hand.

    MicroPython would load such a one in place of ours: it takes `main.py` before `main.mpy`, a folder before a file,
    and the root before `/lib`.

    Args:
        there: the paths of the files on the board.
        wanted: the paths that belong there.
    """
    keep = set(wanted)
    ours = {_package_of(name) for name in keep if name.startswith("lib/")}
    return sorted(name for name in there if name not in keep and name.endswith(MODULES) and _package_of(name) in ours)


def _package_of(name: str) -> str:
    top = name.removeprefix("lib/").partition("/")[0]
    return top.removesuffix(MODULES[0]).removesuffix(MODULES[1])


def named_files(keys: Config) -> list[str]:
    """The files that the configuration's ports name, as paths from the board's root."""
    found = {}
    for port in keys.ports:
        for key in ("ca", "certificate", "key"):
            if name := getattr(port, key, None):
                found[name.lstrip("/")] = True
    if bad := [name for name in found if ".." in Path(name).parts or name in OWN]:
        raise Refused(f"port names the file {bad[0]}, expected a name of its own on the board")
    return list(found)


def _mark(files: Mapping[str, bytes]) -> bytes:
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name}\0{len(files[name])}\0".encode() + files[name])
    return json.dumps({"files": len(files), "sha256": digest.hexdigest()}).encode()
