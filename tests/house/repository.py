"""The files that the checks of the repository read."""

import ast
from functools import cache
from pathlib import Path

from tools.cli.paths import source_root

ROOT = source_root()
FOLDERS = ("host", "wire", "flash_store", "device", "gateway", "uplink", "cloud", "tools", "tests")
PORTABLE_FOLDERS = ("wire", "flash_store", "device")
CPYTHON_ONLY = ("wire/bulk/",)  # in a portable folder, and never on a board

_OTHER_FOLDERS = (".ci", "constraints", "docs", "packaging")
_TEXTS = {".py", ".md", ".toml", ".txt", ".ini", ".xml", ".sql", ".svg", ""}


@cache
def files() -> list[Path]:
    """Every file of the repository, without caches and other leftovers."""
    at_the_root = [path for path in ROOT.iterdir() if path.is_file() and not path.name.startswith(".")]
    below = [path for folder in (*FOLDERS, *_OTHER_FOLDERS) for path in (ROOT / folder).rglob("*") if path.is_file()]
    return sorted(path for path in (*at_the_root, *below) if "__pycache__" not in path.parts)


@cache
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


@cache
def read(path: Path) -> str:
    return path.read_text()


def parse(path: Path) -> ast.Module:
    return ast.parse(read(path), name(path))


@cache
def imports(path: Path) -> list[tuple[int, str]]:
    """Every module, or name of a module, that the file names in an import, with its line; relative ones as they stand,
    dots first."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
    return found
