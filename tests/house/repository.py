"""The files that the checks of the repository read."""

import ast
from functools import cache
from pathlib import Path

from tools.cli.paths import source_root

ROOT = source_root()
FOLDERS = ("host", "wire", "flash_store", "device", "gateway", "uplink", "cloud", "tools", "tests")
PORTABLE_FOLDERS = ("wire", "flash_store", "device")
CPYTHON_ONLY = ("wire/bulk/",)  # in a portable folder, and never on a board

_OTHER_FOLDERS = (".ci", "constraints", "docs")
_TEXTS = {".py", ".md", ".toml", ".txt", ".ini", ".xml", ".sql", ".svg", ""}


@cache
def files() -> list[Path]:
    """Every file of the repository, without caches and other leftovers."""
    at_the_root = [path for path in ROOT.iterdir() if path.is_file() and not path.name.startswith(".")]
    below = [path for folder in (*FOLDERS, *_OTHER_FOLDERS) for path in (ROOT / folder).rglob("*") if path.is_file()]
    return sorted(path for path in (*at_the_root, *below) if "__pycache__" not in path.parts)


def texts() -> list[Path]:
    return [path for path in files() if path.suffix in _TEXTS]


def modules(folder: str) -> list[Path]:
    return [path for path in texts() if path.suffix == ".py" and name(path).startswith(f"{folder}/")]


def portable_modules() -> list[Path]:
    return [path for folder in PORTABLE_FOLDERS for path in modules(folder) if not name(path).startswith(CPYTHON_ONLY)]


def pages() -> list[Path]:
    """Every Markdown page."""
    return [path for path in texts() if path.suffix == ".md"]


def name(path: Path) -> str:
    """The path from the repository's root."""
    return path.relative_to(ROOT).as_posix()


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), name(path))
