"""`holdfast device stubs`: what a type checker and an editor need to know of a board and of our library."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tools.cli.failure import fail, failing_on
from tools.cli.output import is_unfinished, replaced_whole, write_whole
from tools.cli.paths import source_root

VERSIONS = "versions.txt"  # what a folder of stubs was made from; its last file
STUBS = "micropython-{board}-stubs==1.29.0.post1", "micropython-stdlib-stubs==1.29.0.post2"
LIBRARY = "holdfast"  # the folder of our library, which is the same for every board
FACE = "holdfast.pyi"
FACE_SOURCE = Path("device/library.py")
PACKAGES = ("wire", "flash_store", "device")
CPYTHON_ONLY = "bulk"
RETRIES = 2  # of pip, where a server cannot be reached
PIP_TIMEOUT_S = 300
MYPY = """\
[mypy]
platform = {board}
custom_typeshed_dir = $MYPY_CONFIG_FILE_DIR/{board}
mypy_path = $MYPY_CONFIG_FILE_DIR/{board}:$MYPY_CONFIG_FILE_DIR/{library}
check_untyped_defs = true

# What the stubs say of these does not agree with itself.
[mypy-_mpy_shed.*,machine,network,rp2.*,vfs]
ignore_errors = true

[mypy-wire.*,flash_store.*,device.*]
ignore_errors = true

# Only an STM32 has it.
[mypy-pyb]
ignore_missing_imports = true
"""


class Board(StrEnum):
    """What there are stubs for."""

    ESP32 = "esp32"
    RP2 = "rp2"


def stubs(
    board: Annotated[Board, typer.Option("--board", help="The kind of board.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write to.")] = Path("typings"),
) -> None:
    """Fetch MicroPython's type stubs of a board for an editor, mypy and Pyright, with those of `holdfast`."""
    with failing_on(OSError, subprocess.TimeoutExpired, command="device stubs"):
        _fill(out / board, _wanted(board))
        # In a checkout the library is there already, and so are the settings.
        if not (out.resolve().parent / FACE_SOURCE).exists():
            _write_library(out / LIBRARY)
            _write_once(out / f"{board}.json", json.dumps(_pyright(board), indent=4) + "\n")
            _write_once(out / f"{board}.ini", MYPY.format(board=board, library=LIBRARY))
    typer.echo(f"{out / board}: {', '.join(_wanted(board))}")
    typer.echo(f'Editors with Pyright or Pylance: pyrightconfig.json with {{"extends": "{out / board}.json"}}')
    typer.echo(f"mypy: mypy --config-file {out / board}.ini FILE.py")


def _wanted(board: Board) -> list[str]:
    return [one.format(board=board) for one in STUBS]


def _fill(folder: Path, wanted: list[str]) -> None:
    """Has pip put the packages into the folder, unless exactly these are in it.

    Raises OSError, and subprocess.TimeoutExpired if pip does not end.
    """
    versions = "".join(f"{one}\n" for one in wanted)
    marker = folder / VERSIONS
    if marker.exists() and marker.read_text() == versions:
        return
    _refuse_other_files(folder, VERSIONS)
    with replaced_whole(folder, last=VERSIONS) as making:
        options = ["--no-deps", "--no-user", "--no-compile", "--no-input", "--disable-pip-version-check"]
        options += ["--quiet", "--retries", str(RETRIES), "--target", str(making)]
        done = subprocess.run(
            [sys.executable, "-P", "-m", "pip", "install", *options, *wanted],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PIP_TIMEOUT_S,
        )
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
            fail("device stubs", f"pip cannot install {' '.join(wanted)}; nothing was changed. It says: {said[-1]}")
        (making / VERSIONS).write_text(versions)


def _write_library(folder: Path) -> None:
    """Writes the sources of what is on a board, with the module `holdfast` and its types. Raises OSError."""
    _refuse_other_files(folder, FACE)
    with replaced_whole(folder, last=FACE) as making:
        for source in _sources():
            target = making / source.relative_to(source_root())
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        shutil.copyfile(source_root() / FACE_SOURCE, making / "holdfast.py")
        shutil.copyfile(Path(__file__).with_name(FACE), making / FACE)


def _sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (path for path in (source_root() / package).rglob("*.py") if path.parent.name != CPYTHON_ONLY)


def _refuse_other_files(folder: Path, last: str) -> None:
    if folder.exists() and any(folder.iterdir()) and not ((folder / last).exists() or is_unfinished(folder)):
        fail("device stubs", f"{folder} is neither empty nor made by this command; nothing was changed")


def _write_once(path: Path, text: str) -> None:
    """Writes a file of settings, which a user may have changed since."""
    if not path.exists():
        write_whole(path, text.encode())


def _pyright(board: Board) -> dict[str, object]:
    return {
        "exclude": [*Board, LIBRARY],
        "extraPaths": [LIBRARY],
        "stubPath": board,
        "typeshedPath": board,
        "pythonPlatform": "All",
        "pythonVersion": "3.11",
        "reportMissingModuleSource": "none",
    }
