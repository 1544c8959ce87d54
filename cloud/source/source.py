"""`spark.read.format("holdfast")` and `spark.readStream.format("holdfast")`, by Spark's Python Data Source API.

Source: https://spark.apache.org/docs/latest/api/python/tutorial/sql/python_data_source.html
"""

from collections.abc import MutableMapping
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cloud.source.landing import SCHEMA, LandingReader, LandingStream, Messages
from cloud.source.tables import TableReader, TableRows, TableStream
from cloud.source.wanted import parse_wanted
from cloud.storage.place import is_url
from cloud.tables.schema import BATCHES, BRONZE_MESSAGES, QUARANTINE, READINGS, STATEMENT_TABLES, TABLES, Table

NAME = "holdfast"
FILES_MAX = 1_000
"""The most files of a batch of a stream, unless the option `maxFilesPerTrigger` says otherwise."""
STREAMED = [table.name for table in (BRONZE_MESSAGES, READINGS, QUARANTINE, BATCHES, *STATEMENT_TABLES)]
"""The tables whose rows stay as a batch has added them. Intervals of the others become one with their neighbours."""


def register_source(spark: SparkSession) -> None:
    """Makes the source `holdfast` known to a session. Each Python of its executors has to have this package.

    A path that is relative is in the folder that this program works in now: Spark's workers have others.
    """
    spark.dataSource.register(type("Source", (HoldfastSource,), {"home": str(Path.cwd())}))


class HoldfastSource(DataSource):
    """A landing folder, or with the option `table` a table. `path` is a path or a URL, as `ingest` takes it.

    `home` is the folder in which a relative path is.
    """

    home = ""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Raises ValueError for an option that cannot be."""
        super().__init__(options)
        place = options.get("path")
        if not place:
            raise ValueError("the source holdfast needs a path: load(PATH) or option('path', PATH)")
        self._place = place if is_url(place) else str(Path(self.home, place))
        self._table = _table(options.get("table"))
        self._columns = self._table.empty().schema if self._table else SCHEMA
        self._wanted = parse_wanted(options, self._columns)
        self._files_max = _positive("maxFilesPerTrigger", options.get("maxFilesPerTrigger", str(FILES_MAX)))

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        columns: StructType = from_arrow_schema(self._columns)
        return columns

    def reader(self, schema: StructType) -> DataSourceReader:
        columns = self._names(schema)
        if self._table is None:
            return LandingReader(self._place, Messages(columns, self._wanted))
        return TableReader(TableRows(self._place, self._table, columns, self._wanted))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        columns = self._names(schema)
        if self._table is None:
            return LandingStream(self._place, Messages(columns, self._wanted), self._files_max)
        if self._table.name not in STREAMED:
            known = ", ".join(STREAMED)
            raise ValueError(f"{self._table.name} cannot be read as a stream, as its rows change; these can: {known}")
        return TableStream(TableRows(self._place, self._table, columns, self._wanted), self._files_max)

    def _names(self, wanted: StructType) -> list[str]:
        """Returns the names of the columns in the query's schema. Raises ValueError for one that is not ours."""
        ours = {field.name: field.dataType for field in self.schema()}
        for field in wanted:
            if ours.get(field.name) != field.dataType:
                kind = ours[field.name].simpleString() if field.name in ours else "missing"
                raise ValueError(
                    f"column {field.name} is {kind} here, the query's schema says {field.dataType.simpleString()}"
                )
        return wanted.names


def _table(name: str | None) -> Table | None:
    found = {table.name: table for table in TABLES}
    if name is not None and name not in found:
        raise ValueError(f"there is no table {name!r}; the tables are {', '.join(found)}")
    return found[name] if name is not None else None


def _positive(option: str, text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ValueError(f"{option} is a number of files above 0, not {text!r}")
    return int(text)
