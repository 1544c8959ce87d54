"""The page of conformance names every check and test, and none that does not exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.repository import ROOT, modules
from tools.lab.check.chapters import load
from tools.lab.check.conformance import PAGE, STANDARDS, mosquitto_faults, renewed, shown_by, statements

# The tags that stand in code and tests of broker and wire, as "[MQTT-3.1.0-1]" or "[MQTT-3.1.2-24, MQTT-3.2.2-15]".
TAG = re.compile(r"MQTT-\d[-.\d]*-\d+")
TAGGED = ("wire", "gateway", "uplink", "device", "tests")
HOW_MANY = {"3.1.1": 141, "5": 253}


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def named_tests(text: str) -> Iterator[tuple[Path, str]]:
    for path, name in re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", text):
        yield ROOT / path, name


def test_page_is_what_the_checks_and_statements_make() -> None:
    page = PAGE.read_text()
    assert renewed(page) == page, "python -m tools.lab.check.conformance writes it anew"


@pytest.mark.parametrize("version", STANDARDS)
def test_every_statement_is_shown_or_has_a_reason(version: str) -> None:
    table, checks = statements(version), shown_by(version)
    assert len(table) == HOW_MANY[version]
    assert [one.tag for one in table if not one.elsewhere and one.tag not in checks] == []
    assert sorted(set(checks) - {one.tag for one in table}) == []


@pytest.mark.parametrize("version", STANDARDS)
def test_named_tests_exist(version: str) -> None:
    for one in statements(version):
        for path, name in named_tests(one.elsewhere):
            assert path.is_file(), f"{one.tag}: {path}"
            assert not name or name in functions_of(path), f"{one.tag}: {name} is not in {path}"


def test_every_tag_in_code_and_tests_is_a_statement() -> None:
    known = {one.tag for version in STANDARDS for one in statements(version)}
    found = {
        (tag, path.relative_to(ROOT).as_posix())
        for folder in TAGGED
        for path in modules(folder)
        for tag in TAG.findall(path.read_text())
    }
    assert sorted((tag, name) for tag, name in found if tag not in known) == []


def test_faults_of_mosquitto_name_checks() -> None:
    assert mosquitto_faults().keys() <= {(check.version, check.name) for check in load()}


def test_checks_are_sentences_and_each_is_there_once() -> None:
    checks = load()
    assert [one.name for one in checks if not re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+){2,}(\[\w+\])?", one.name)] == []
    assert len({(one.version, one.name) for one in checks}) == len(checks)
