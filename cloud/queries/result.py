"""What a query gives: rows as plain Python values, or an error for people."""

from decimal import Decimal
from typing import NamedTuple

import pyarrow as pa


class BadQuery(Exception):
    """The SQL is not one statement that only reads, or the engine refuses it. The text is one line with the reason."""


class Result(NamedTuple):
    """Column names, and rows of plain Python values. Times are in UTC."""

    columns: list[str]
    rows: list[tuple[object, ...]]


def collect(rows: pa.Table) -> Result:
    """Returns the rows of an engine. Sums of whole numbers, which may be decimals there, are whole numbers."""
    columns = [
        list(map(_whole, column.to_pylist()))
        if pa.types.is_decimal(column.type) and not column.type.scale
        else column.to_pylist()
        for column in rows.columns
    ]
    return Result(rows.column_names, list(zip(*columns, strict=True)) if columns else [])


def first_line(error: Exception) -> str:
    """Returns the reason that an engine gives, without its drawing of the place."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _whole(value: Decimal | None) -> int | None:
    return None if value is None else int(value)
