"""Texts that no file of the repository may contain, and how long a file may be."""

import re
from pathlib import Path

import pytest

from tests.house.repository import ROOT, name, texts

LINES_MAX = 600
ANYWHERE = {
    "a package registry or archive": re.compile(
        r"deb\.debian\.org|archive\.ubuntu\.com|pypi\.org|pythonhosted\.org|registry\.npmjs|maven\.apache\.org/maven2"
        r"|repo1?\.maven|crates\.io"
    ),
    "one machine's folder": re.compile(r"/wor[k]/|/roo[t]/|/hom[e]/(?!you\b)\w|/User[s]/"),
}
IN_CODE = {"a fixed temporary folder": re.compile(r"""["'`\s=:]/tm[p]/""")}


@pytest.mark.parametrize("path", texts(), ids=name)
def test_file_names_no_machine_and_no_registry(path: Path) -> None:
    patterns = ANYWHERE if path.suffix == ".md" else {**ANYWHERE, **IN_CODE}
    found = [
        f"{name(path)}:{number} names {what}: {line.strip()}"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for what, pattern in patterns.items()
        if pattern.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("path", [path for path in texts() if path.suffix == ".py"], ids=name)
def test_module_stays_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES_MAX


@pytest.mark.parametrize("path", texts(), ids=name)
def test_file_ends_with_one_newline_and_no_line_with_blanks(path: Path) -> None:
    text = path.read_text()
    assert text == "" or (text.endswith("\n") and not text.endswith("\n\n"))
    assert [number for number, line in enumerate(text.splitlines(), 1) if line != line.rstrip()] == []


def test_licence_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
