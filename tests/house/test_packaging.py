"""The distribution, its extras and the versions that it is tested with."""

import re

import pytest
from packaging.utils import canonicalize_name

from tests.house.extras import EXTRAS, NEEDS_ALL_EXTRAS, PROJECT, brought_by
from tests.house.repository import FOLDERS, ROOT, files, name

CONSTRAINTS = ROOT / "constraints/python3.txt"
SHIPPED = [folder for folder in FOLDERS if folder != "tests"]


def pins() -> set[str]:
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]
    return {canonicalize_name(line.partition("==")[0]) for line in lines}


def test_constraints_pin_one_version_a_line_without_address_or_hash() -> None:
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
    assert lines == sorted(lines, key=lambda line: line.partition("==")[0].lower())


@NEEDS_ALL_EXTRAS
def test_constraints_pin_everything_that_is_installed_and_nothing_else() -> None:
    assert {name for extra in EXTRAS for name in brought_by(extra)} == pins()


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
