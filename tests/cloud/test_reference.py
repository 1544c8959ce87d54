"""The reference pages name every column and key."""

import re

import duckdb
import pytest

from cloud.landing.file import SCHEMA
from cloud.landing.manifest import Manifest
from cloud.tables.schema import TABLES, Table
from tools.cli.paths import source_root

REFERENCE = source_root() / "docs/reference"


def names_in(text: str) -> set[str]:
    """Returns the words in backquotes in the first column of the text's tables."""
    first_cells = re.findall(r"^\|([^|]*)\|", text, re.MULTILINE)
    return {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_column_of_a_table_is_documented(table: Table) -> None:
    _, found, rest = (REFERENCE / "tables.md").read_text().partition(f"\n## {table.name}\n")
    assert found, f"tables.md has no heading {table.name}"
    assert names_in(rest.partition("\n## ")[0]) == set(table.column_names)


def test_every_column_and_key_of_a_landing_file_is_documented() -> None:
    columns, manifest = (
        (REFERENCE / "landing-files.md").read_text().partition("\n## Columns\n")[2].split("\n## Manifest")
    )
    assert names_in(columns) == set(SCHEMA.names)
    assert names_in(manifest) == set(Manifest.__struct_fields__)


def test_sources_of_dbt_have_the_columns_of_the_tables_and_test_what_is_never_null() -> None:
    text = (source_root() / "docs/how-to/dbt/schema.yml").read_text()
    described = {}
    for part in re.split(r"^      - name: ", text, flags=re.MULTILINE)[1:]:
        columns = re.split(r"^          - name: ", part, flags=re.MULTILINE)[1:]
        described[part.split()[0]] = {column.split()[0]: "not_null" in column for column in columns}
    assert described == {table.name: {column.name: column.required for column in table.columns} for table in TABLES}


def test_sources_of_dbt_accept_each_quality_that_the_page_of_tables_names() -> None:
    text = (source_root() / "docs/how-to/dbt/schema.yml").read_text()
    (column,) = re.findall(r"^          - name: quality\n(.*?)^          - name: ", text, re.MULTILINE | re.DOTALL)
    accepted = set(re.findall(r'"([^"]+)"', column.partition("values: ")[2]))
    (line,) = re.findall(r"^\| `quality` \| string \| (.*?)\. ", (REFERENCE / "tables.md").read_text(), re.MULTILINE)
    assert accepted == set(re.findall(r"`([a-z ]+)`", line)) and "good" in accepted


def test_sources_of_dbt_quote_the_columns_that_are_words_of_sql() -> None:
    text = (source_root() / "docs/how-to/dbt/schema.yml").read_text()
    with duckdb.connect() as engine:
        asked = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category = 'reserved'"
        words = engine.execute(asked).fetchall()
    columns = {part.split()[0]: part for part in re.split(r"^          - name: ", text, flags=re.MULTILINE)[1:]}
    reserved = {name for (name,) in words} & set(columns)
    assert reserved == {name for name, part in columns.items() if "quote: true" in part} == {"check", "table"}
