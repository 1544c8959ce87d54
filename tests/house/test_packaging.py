"""The distribution, its extras and the versions that it is tested with."""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house.repository import FOLDERS, ROOT, files, name
from tools.cli import COMMANDS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
CONSTRAINTS = ROOT / "constraints/python3.txt"
SHIPPED = [folder for folder in FOLDERS if folder != "tests"]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def pins() -> set[str]:
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]
    return {canonicalize_name(line.partition("==")[0]) for line in lines}


def wanted(requirement: Requirement) -> bool:
    marker = requirement.marker
    return marker is None or any(
        marker.evaluate({"extra": "", "python_version": python, "python_full_version": f"{python}.5"})
        for python in PYTHONS
    )


def needed() -> Iterator[str]:
    """The name of every distribution that any extra brings, directly or not."""
    todo = [Requirement(line) for lines in (PROJECT["project"]["dependencies"], *EXTRAS.values()) for line in lines]
    seen = set()
    while todo:
        distribution = canonicalize_name(todo.pop().name)
        if distribution not in seen and distribution != "holdfast":
            seen.add(distribution)
            yield distribution
            todo += [found for found in map(Requirement, requires(distribution) or []) if wanted(found)]


def test_constraints_pin_one_version_a_line_without_address_or_hash() -> None:
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
    assert lines == sorted(lines, key=lambda line: line.partition("==")[0].lower())


def test_constraints_pin_everything_that_is_installed_and_nothing_else() -> None:
    assert set(needed()) == pins()


def test_every_command_names_an_extra_that_exists() -> None:
    assert {command.extra for command in COMMANDS.values()} <= set(EXTRAS)


def test_every_folder_but_the_tests_is_shipped() -> None:
    shipped = {folder for folder in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"] if "." not in folder}
    assert shipped == set(SHIPPED)


@pytest.mark.parametrize("folder", SHIPPED)
def test_shipped_folders_are_packages(folder: str) -> None:
    sources = [path.parent for path in (ROOT / folder).rglob("*.py")]
    assert sources
    assert [path for path in sources if not (path / "__init__.py").exists()] == []


def test_files_beside_the_modules_are_shipped_with_them() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["*"]
    beside = [path for path in files() if name(path).partition("/")[0] in SHIPPED and path.suffix != ".py"]
    assert [name(path) for path in beside if f"*{path.suffix}" not in patterns] == []
