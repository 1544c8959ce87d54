"""The distribution, its extras and the versions that it is tested with."""

import re

import pytest
from packaging.utils import canonicalize_name

from tests.house.extras import EXTRAS, NEEDS_ALL_EXTRAS, PROJECT, brought_by
from tests.house.repository import FOLDERS, ROOT

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


def test_every_folder_but_the_tests_is_shipped_below_one_name() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["only-include"] == list(wheel["sources"])
    assert wheel["sources"] == {folder: f"holdfast_iot/{folder}" for folder in SHIPPED}


@pytest.mark.parametrize("folder", SHIPPED)
def test_shipped_folders_are_packages(folder: str) -> None:
    sources = [path.parent for path in (ROOT / folder).rglob("*.py")]
    assert sources
    assert [path for path in sources if not (path / "__init__.py").exists()] == []
