"""The table of boards: a CSV file with a line of column names, and one row a board."""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NAME_COLUMN, PORT_COLUMN = "name", "port"
COLUMNS = (
    NAME_COLUMN,
    PORT_COLUMN,
    "board",
    "wifi",
    "wifi_password_file",
    "gateway",
    "user",
    "password_file",
    "topic",
    "status",
    "commands",
    "interval_s",
    "flash",
    "ntp",
    "sensors",
)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # as `holdfast site device` takes it
NAME_FORM = "at most 64 letters, digits and -._ and a letter or digit first"
SECRETS = ("password", "wifi_password")


class TableError(Exception):
    """The table cannot be used. The text has a line for each fault, with file and line."""


@dataclass(frozen=True)
class Row:
    """One board.

    Attributes:
        where: file and line, for errors.
        name: the device's client identifier.
        cells: what is in the columns, without empty ones.
    """

    where: str
    name: str
    cells: Mapping[str, str]

    @property
    def port(self) -> str:
        """The board's serial port, "" if the next board that is plugged in is meant."""
        return self.cells.get(PORT_COLUMN, "")


def read_table(path: Path) -> list[Row]:
    """Reads a table and checks names and ports.

    Raises:
        TableError: it cannot be read, a column is unknown, or a name or a port is wrong or there twice.
    """
    try:
        lines = path.read_bytes().decode("utf-8-sig").splitlines(keepends=True)
    except OSError as error:
        raise TableError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TableError(f"{path}: expected text in UTF-8") from error
    reader = csv.reader(lines, strict=True)
    rows: list[Row] = []
    faults: list[str] = []
    columns: list[str] = []
    try:
        for cells in reader:
            cells = [cell.strip() for cell in cells]
            where = f"{path}:{reader.line_num}"
            if not any(cells):
                continue
            if not columns:
                columns = cells
                _check_columns(columns, where)
            elif len(cells) != len(columns):
                faults.append(f"{where}: {len(cells)} columns, expected {len(columns)}")
            else:
                found = {column: cell for column, cell in zip(columns, cells, strict=True) if cell}
                rows.append(Row(where, found.get(NAME_COLUMN, ""), found))
    except csv.Error as error:
        faults.append(f"{path}:{reader.line_num}: {error}")
    faults += _faults(rows)
    if faults:
        raise TableError("\n".join(faults))
    if not rows:
        raise TableError(f"{path}: expected a line of column names, and one row a board")
    return rows


def _check_columns(columns: list[str], where: str) -> None:
    for column in columns:
        if column in SECRETS:
            raise TableError(f"{where}: no password belongs into the table, expected the column {column}_file")
        if column not in COLUMNS:
            raise TableError(f"{where}: there is no column {column!r}, expected some of {', '.join(COLUMNS)}")
        if columns.count(column) > 1:
            raise TableError(f"{where}: the column {column} is there twice")
    if NAME_COLUMN not in columns:
        raise TableError(f"{where}: the column {NAME_COLUMN} is missing")


def _faults(rows: list[Row]) -> list[str]:
    faults = []
    names: dict[str, str] = {}
    ports: dict[str, str] = {}
    for row in rows:
        if not NAME.fullmatch(row.name):
            faults.append(f"{row.where}: name is {row.name!r}, expected {NAME_FORM}")
        elif row.name in names:
            faults.append(f"{row.where}: name {row.name} is also that of {names[row.name]}")
        if row.port and row.port in ports:
            faults.append(f"{row.where}: port {row.port} is also that of {ports[row.port]}")
        names.setdefault(row.name, row.where)
        ports.setdefault(row.port, row.where)
    return faults
