"""What a process does to its files, as strace records it."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tools.lab import strace

CALLS = ("pwrite64", "write", "ftruncate", "fsync", "fdatasync", "unlink", "rename")
SYNCS = ("fsync", "fdatasync")
STRING_MAX = 1_000_000
SAID = 1  # the file descriptor on which the process says what it has done

STARTED = re.compile(r"(\d+) +(\w+)\((.*?)(\) += (-?\d+).*| <unfinished \.\.\.>)?$")
RESUMED = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>.*= (-?\d+)")
FILE = re.compile(r"(\d+)<((?:\\x[0-9a-f]{2})+)>")
STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


class Write(NamedTuple):
    """Bytes go to a place in a file."""

    path: str
    offset: int
    data: bytes


class Truncate(NamedTuple):
    """A file gets a size."""

    path: str
    size: int


class SyncBegun(NamedTuple):
    """What was written to a file so far will be on the medium when ``SyncEnded`` comes."""

    path: str
    thread: str


class SyncEnded(NamedTuple):
    """The sync that a thread began is done."""

    path: str
    thread: str


class Remove(NamedTuple):
    """A file is there no more."""

    path: str


class Said(NamedTuple):
    """The process said something on its standard output."""

    text: str


Event = Write | Truncate | SyncBegun | SyncEnded | Remove | Said


def trace(argv: list[str], path: Path, cwd: Path) -> None:
    """Runs a command in a folder to its end, and writes the record.

    Raises:
        StraceUnavailable: there is none that may trace.
        subprocess.CalledProcessError: the command failed.
    """
    strace.check()
    options = ["-f", "-xx", "-y", "-s", str(STRING_MAX), "-e", f"trace={','.join(CALLS)}", "-o", str(path)]
    subprocess.run(["strace", *options, *argv], capture_output=True, check=True, cwd=cwd)


def read(path: Path, folder: Path) -> Iterator[Event]:
    """Yields what a record says of the files of a folder, in order.

    A write counts from its beginning: some of it may be on the medium before it returns.
    """
    syncing: dict[str, str] = {}
    with path.open() as lines:
        for line in lines:
            if found := RESUMED.match(line):
                thread, call, result = found.groups()
                if call in SYNCS and thread in syncing and result == "0":
                    yield SyncEnded(syncing.pop(thread), thread)
            elif found := STARTED.match(line):
                thread, call, arguments, ending, result = found.groups()
                yield from _event(thread, call, arguments, str(folder))
                if call in SYNCS and (file := _file(arguments, str(folder))):
                    if result == "0":
                        yield SyncEnded(file, thread)
                    elif ending is not None and result is None:
                        syncing[thread] = file


def _event(thread: str, call: str, arguments: str, folder: str) -> Iterator[Event]:
    if call in ("unlink", "rename"):
        names = [bytes.fromhex(name.replace("\\x", "")).decode() for name in STRING.findall(arguments)]
        if names[0].startswith(folder):
            assert call == "unlink", f"{names} were renamed, which the store never does"
            yield Remove(names[0])
        return
    if call == "write":
        if arguments.startswith(f"{SAID}<"):
            yield Said(_data(arguments).decode().strip())
        return
    if file := _file(arguments, folder):
        last = int(arguments.rsplit(",", 1)[-1]) if call in ("pwrite64", "ftruncate") else 0
        if call == "pwrite64":
            yield Write(file, last, _data(arguments))
        elif call == "ftruncate":
            yield Truncate(file, last)
        else:
            yield SyncBegun(file, thread)


def _file(arguments: str, folder: str) -> str | None:
    """The file that a call is about, where it is one of the folder."""
    found = FILE.match(arguments)
    path = bytes.fromhex(found[2].replace("\\x", "")).decode() if found else ""
    return path if path.startswith(f"{folder}/") else None


def _data(arguments: str) -> bytes:
    found = STRING.search(arguments)
    assert found is not None, arguments[:200]
    return bytes.fromhex(found[1].replace("\\x", ""))
