"""Which folder may import which. The reasons are in docs/explanation/architecture.md."""

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tests.house.extras import NEEDS_ALL_EXTRAS
from tests.house.repository import FOLDERS, ROOT, imports, modules, name, parse

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "host": (),
    "wire": (),
    "flash_store": (),
    "device": ("wire", "flash_store"),
    "gateway": ("host", "wire"),
    "uplink": ("host", "wire", "gateway.routes", "gateway.links", "gateway.delivery", "gateway.store"),
    "cloud": ("host", "wire"),
    "tools": ("host", "wire", "flash_store", "device", "gateway", "uplink", "cloud"),
    "tests": FOLDERS,
}

# Packages whose `__init__` says, by `__all__`, what other folders may use; with the folders that may reach inside.
FACES = {
    "cloud": (
        "cloud/",
        "tests/",
        "tools/lab/bench/cloud/",
        "tools/lab/torture/cloud/",
        "tools/lab/torture/proof/",
    ),
    "gateway.broker": ("gateway/broker/", "tests/"),
    "gateway.delivery": ("gateway/delivery/", "tests/"),
    "gateway.store": ("gateway/store/", "tests/", "tools/lab/torture/store/"),  # the torture breaks it from inside
    "gateway.store.repair": ("gateway/store/repair/", "tests/"),
}

# The same for folders that boards run: the docstring lists modules, since an `__all__` would cost a board's heap.
PORTABLE_FACES = {
    "wire": ("wire/", "tests/"),
    "flash_store": ("flash_store/", "tests/", "tools/lab/torture/flash/"),  # the torture damages it from inside
}


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


@cache
def names_in(face: str) -> set[str]:
    """What the `__all__` of a package lists."""
    return set(import_module(face).__all__)


def past_a_face(path: Path) -> list[str]:
    """What a file imports of a package with a face that is not listed there, unless the file may reach inside."""
    found = []
    for line, module in imports(path):
        inside = [face for face in FACES if f"{module}.".startswith(f"{face}.")]
        package, _, listed = module.rpartition(".")
        if (
            inside
            and module not in FACES
            and not (package in FACES and listed in names_in(package))
            and not name(path).startswith(FACES[max(inside, key=len)])
        ):
            found.append(f"{name(path)}:{line} imports {module}")
    return found


@NEEDS_ALL_EXTRAS
def test_other_folders_import_what_a_face_lists_and_nothing_else() -> None:
    assert [found for folder in FOLDERS for path in modules(folder) for found in past_a_face(path)] == []


@cache
def modules_in(face: str) -> set[str]:
    """The modules that the docstring of a package lists, one a line, each before what it has."""
    text = ast.get_docstring(parse(ROOT / face / "__init__.py")) or ""
    return set(re.findall(rf"^    ({face}\.[a-z0-9_.]+)  +\S", text, re.MULTILINE))


def past_a_portable_face(path: Path) -> list[str]:
    """What a file imports of a portable package from a module that is not listed, unless the file may reach inside."""
    return [
        f"{name(path)}:{line} imports {module}"
        for line, module in imports(path)
        for face, insiders in PORTABLE_FACES.items()
        if module.startswith(f"{face}.")
        and not {module, module.rpartition(".")[0]} & modules_in(face)
        and not name(path).startswith(insiders)
    ]


def test_other_folders_import_from_the_modules_that_a_portable_face_lists_and_from_no_others() -> None:
    assert [found for folder in FOLDERS for path in modules(folder) for found in past_a_portable_face(path)] == []


@pytest.mark.parametrize("face", PORTABLE_FACES)
def test_a_portable_face_lists_modules_that_there_are_and_that_others_import(face: str) -> None:
    used = {
        listed
        for folder in FOLDERS
        if folder not in (face, "tests")
        for path in modules(folder)
        for _, module in imports(path)
        for listed in (module, module.rpartition(".")[0])
    }
    assert modules_in(face) - used == set()
