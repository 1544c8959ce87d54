"""Compiles the modules that a gateway loads, so that it starts fast. What is not compiled only loads more slowly.

Python itself writes a part of a module to a full disk, and no later start can read it (python/cpython, issue 126606).
So each module is written beside its place and read again, and moved there when all of them are on the disk.
"""

import marshal
import os
import py_compile
import sys
from concurrent.futures import ProcessPoolExecutor
from importlib.util import cache_from_source
from pathlib import Path

HEADER_BYTES = 16  # before the code [PEP 552]
RARE = ("holdfast/tools/lab", "holdfast/cloud", "holdfast/device", "holdfast/flash_store", "libraries/pygments/lexers")


def compile_one(source: Path) -> Path | None:
    """Writes the code of a module beside its place; returns the file, None if the disk did not take it whole."""
    new = Path(f"{cache_from_source(str(source))}.new")
    try:
        py_compile.compile(str(source), str(new), doraise=True, dfile=str(source))
        marshal.loads(new.read_bytes()[HEADER_BYTES:])
    except (OSError, EOFError, ValueError, TypeError, py_compile.PyCompileError):
        new.unlink(missing_ok=True)
        return None
    return new


def main() -> None:
    folder = Path(sys.argv[1])
    rare = tuple(f"{folder / one}/" for one in RARE)
    sources = [path for path in sorted(folder.rglob("*.py")) if not str(path).startswith(rare)]
    with ProcessPoolExecutor() as workers:
        made = [one for one in workers.map(compile_one, sources, chunksize=40) if one is not None]
    os.sync()
    for new in made:
        new.replace(new.with_suffix(""))
    os.sync()


if __name__ == "__main__":
    main()
