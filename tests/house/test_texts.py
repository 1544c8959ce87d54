"""Texts that no file of the repository may contain, and how long a file may be."""

import re

from tests.house.repository import ROOT, name, read, texts

LINES_MAX = 600
ANYWHERE = {
    "a package registry or archive": re.compile(
        r"deb\.debian\.org|archive\.ubuntu\.com|pypi\.org|pythonhosted\.org|registry\.npmjs|maven\.apache\.org/maven2"
        r"|repo1?\.maven|crates\.io"
    ),
    "one machine's folder": re.compile(r"/wor[k]/|/roo[t]/|/hom[e]/(?!you\b)\w|/User[s]/"),
}
IN_CODE = {"a fixed temporary folder": re.compile(r"""["'`\s=:]/tm[p]/""")}


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = [
        f"{name(path)}:{number} names {what}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(read(path).splitlines(), 1)
        for what, pattern in (ANYWHERE if path.suffix == ".md" else {**ANYWHERE, **IN_CODE}).items()
        if pattern.search(line)
    ]
    assert found == []


def test_modules_stay_short() -> None:
    lengths = {name(path): len(read(path).splitlines()) for path in texts() if path.suffix == ".py"}
    assert {module: length for module, length in lengths.items() if length > LINES_MAX} == {}


def test_files_end_with_one_newline_and_no_line_with_blanks() -> None:
    ends = re.compile(r"(?:|(?s:.*)[^\n]\n)\Z")
    assert [name(path) for path in texts() if not ends.match(read(path))] == []
    assert [
        f"{name(path)}:{number}"
        for path in texts()
        for number, line in enumerate(read(path).splitlines(), 1)
        if line != line.rstrip()
    ] == []


def test_licence_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
