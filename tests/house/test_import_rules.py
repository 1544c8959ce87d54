"""Who may import whom. The reasons are in docs/explanation/architecture.md."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.repository import FOLDERS, ROOT, modules, name, parse

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "wire": (),
    "flash_store": (),
    "device": ("wire", "flash_store"),
    "gateway": ("wire",),
    # The gateway's store by its interface, its numbers, and the way its configuration files and certificates are read.
    "uplink": (
        "wire",
        "gateway.store",
        "gateway.message",
        "gateway.config",
        "gateway.config_errors",
        "gateway.config_file",
        "gateway.errors",
        "gateway.numbers",
        "gateway.outgoing",
        "gateway.pem",
        "gateway.subscriptions",
    ),
    "cloud": ("wire",),
    "tools": ("wire", "flash_store", "device", "gateway", "uplink", "cloud"),
    "tests": FOLDERS,
}


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module that the file names in an import, with its line; relative ones as they stand, dots first."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


def breaches(folder: str) -> list[str]:
    allowed = (folder, *MAY_IMPORT[folder])
    return [
        f"{name(path)}:{line} imports {module}"
        for path in modules(folder)
        for line, module in imports(path)
        if module.startswith(".")
        or (module.partition(".")[0] in FOLDERS and not any(f"{module}.".startswith(f"{ours}.") for ours in allowed))
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_imports_only_what_it_may(folder: str) -> None:
    assert breaches(folder) == []


def test_every_folder_with_modules_has_a_rule() -> None:
    found = {path.parent.name for path in ROOT.glob("*/__init__.py")} | {"tests"}
    assert found == set(MAY_IMPORT)
