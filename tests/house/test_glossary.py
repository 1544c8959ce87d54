"""The glossary gives each word one meaning, and the classes that it names are in the code."""

import re

from tests.house.repository import ROOT, modules, read

PAGE = ROOT / "docs/reference/glossary.md"
SOURCES = ("host", "wire", "flash_store", "device", "gateway", "uplink", "cloud", "tools")
DEFINED = re.compile(r"^(?:class|(?:async )?def) (\w+)", re.MULTILINE)
ROW = re.compile(r"^\| (?!term \|)([^|]+) \| ([^|]+) \|([^|]*)\|$", re.MULTILINE)


def rows() -> list[tuple[str, str, list[str]]]:
    """Each term with its meaning and the names in the code that stand for it."""
    return [(term, meaning, re.findall(r"`(\w+)`", names)) for term, meaning, names in ROW.findall(PAGE.read_text())]


def test_each_table_is_in_order_and_no_term_is_there_twice() -> None:
    tables = [[term.lower() for term, _, _ in ROW.findall(part)] for part in PAGE.read_text().split("\n## ")[1:]]
    assert [len(table) > 10 for table in tables] == [True, True]
    assert tables == [sorted(table) for table in tables]
    terms = [term for table in tables for term in table]
    assert sorted(terms) == sorted(set(terms))


def test_every_name_that_the_glossary_gives_is_in_the_code() -> None:
    defined = {one for folder in SOURCES for path in modules(folder) for one in DEFINED.findall(read(path))}
    assert [(term, name) for term, _, names in rows() for name in names if name not in defined] == []


def test_every_meaning_is_a_sentence() -> None:
    assert [term for term, meaning, _ in rows() if not meaning.endswith(".") or meaning[0].islower()] == []
