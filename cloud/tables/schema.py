"""The Delta tables: their columns with comments, what every row keeps to, and their properties."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

VERSION = 5
"""The version of these definitions, a property of each table."""
VERSION_PROPERTY = "holdfast.schemaVersion"

_ARROW = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "byte": pa.int8(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
}
_SQL = {"long": "BIGINT", "integer": "INT", "byte": "TINYINT"}


class Column(NamedTuple):
    """A column: its name, Delta's name of its type, a comment for people, and whether each row has a value."""

    name: str
    type: str
    comment: str
    required: bool = False


class Constraint(NamedTuple):
    """What is true of each row: in SQL for Delta, and as the expression that our writers check."""

    name: str
    sql: str
    expression: pc.Expression


@dataclass(frozen=True, eq=False)
class Table:
    """A table. `partition` is the column that divides its files, if any."""

    name: str
    comment: str
    columns: tuple[Column, ...]
    constraints: tuple[Constraint, ...] = ()
    partition: str | None = None
    change_feed: bool = False

    @property
    def column_names(self) -> list[str]:
        return [column.name for column in self.columns]

    def column(self, name: str) -> Column:
        """Returns the column of this name."""
        return next(column for column in self.columns if column.name == name)

    @property
    def sql_columns(self) -> str:
        """The columns in Spark's DDL."""
        return self.some_sql_columns(self.column_names)

    def some_sql_columns(self, names: Iterable[str]) -> str:
        """Returns these columns in Spark's DDL."""
        columns = map(self.column, names)
        return ", ".join(f"{column.name} {_SQL.get(column.type, column.type.upper())}" for column in columns)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of the data files: all but the partition's."""
        stored = [column for column in self.columns if column.name != self.partition]
        return pa.schema([pa.field(column.name, _ARROW[column.type]) for column in stored])

    @property
    def delta_schema(self) -> str:
        fields = [
            {
                "name": column.name,
                "type": column.type,
                "nullable": not column.required,
                "metadata": {"comment": column.comment},
            }
            for column in self.columns
        ]
        return msgspec.json.encode({"type": "struct", "fields": fields}).decode()

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties, as Delta's log has them."""
        checks = {f"delta.constraints.{constraint.name}": constraint.sql for constraint in self.constraints}
        feed = {"delta.enableChangeDataFeed": "true"} if self.change_feed else {}
        return {VERSION_PROPERTY: str(VERSION), **checks, **feed}

    def of_values(self, rows: Iterable[tuple[Any, ...]]) -> pa.Table:
        """Returns rows of Python values, at least one, without the partition's column."""
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self.arrow_schema, strict=True)]
        return pa.table(arrays, schema=self.arrow_schema)

    def empty(self) -> pa.Table:
        """Returns the table's columns, with the partition's, and no row."""
        return pa.schema([pa.field(column.name, _ARROW[column.type]) for column in self.columns]).empty_table()


def arrow_schema(delta_schema: str) -> pa.Schema:
    """Returns the columns of a table as its log describes them. Raises KeyError for a type that our tables lack."""
    fields = msgspec.json.decode(delta_schema)["fields"]
    return pa.schema([pa.field(field["name"], _ARROW[field["type"]]) for field in fields])


_ORIGIN = Column("origin", "string", "the maker of the message: a device, gateway or lander", required=True)
_EPOCH = Column("epoch", "string", "eight hexadecimal digits, drawn when the origin's store was made", required=True)
_SEQ = Column("seq", "long", "the message's number in its epoch, without holes from 1", required=True)
_TOPIC = Column("topic", "string", "the topic name at the broker that the lander subscribes to", required=True)
_PAYLOAD = Column("payload", "binary", "the payload as it was published", required=True)
_CONTENT_TYPE = Column("content_type", "string", "the MQTT property; null without it")
_RECEIVED_AT = Column(
    "received_at", "timestamp", "when the first gateway accepted the message, by that gateway's clock"
)
_LANDED_AT = Column("landed_at", "timestamp", "when the message was landed")
_FILE = Column("file", "string", "the landing file", required=True)
_BATCH = Column("batch", "long", "the batch that added the row", required=True)
_INGEST_DATE = Column("ingest_date", "date", "the date of the batch", required=True)

_NUMBERED = Constraint("seq_counts_from_0", "seq >= 0", pc.field("seq") >= 0)

BRONZE_MESSAGES = Table(
    "bronze_messages",
    "each message with a new identity, with its raw payload",
    (
        *(_ORIGIN, _EPOCH, _SEQ, _TOPIC, _PAYLOAD),
        Column("qos", "byte", "of the delivery to the lander", required=True),
        Column("retain", "boolean", "of the delivery to the lander", required=True),
        *(_CONTENT_TYPE, _RECEIVED_AT),
        Column("gateway", "string", "the first gateway; null without one"),
        _LANDED_AT,
        Column("lander", "string", "the lander", required=True),
        *(_FILE, _BATCH, _INGEST_DATE),
    ),
    (_NUMBERED, Constraint("qos_is_known", "qos BETWEEN 0 AND 2", (pc.field("qos") >= 0) & (pc.field("qos") <= 2))),
    partition="ingest_date",
    change_feed=True,
)
READINGS = Table(
    "readings",
    "one row for each value of a new message",
    (
        *(_ORIGIN, _EPOCH, _SEQ),
        Column("record", "integer", "the record's place in its message, from 0", required=True),
        Column("device", "string", "the device that measured", required=True),
        Column("metric", "string", "what was measured", required=True),
        Column("unit", "string", "as registered for SenML"),
        Column("time", "timestamp", "the time that the device told; null if it told none"),
        Column("boot_id", "long", "the number of the device's boot"),
        Column("uptime_ms", "long", "milliseconds since the device's boot"),
        Column("value", "double", "a number"),
        Column("value_string", "string", "a text"),
        Column("value_bool", "boolean", "true or false"),
        Column("value_data", "binary", "bytes"),
        Column("sum", "double", "SenML's s"),
        _TOPIC,
        _RECEIVED_AT,
        Column("event_time", "timestamp", "the best time that was known when the row was added", required=True),
        Column("event_time_by", "string", "where event_time comes from: device, gateway or landing", required=True),
        Column(
            "quality",
            "string",
            "good, or wrong time: the device told a time that cannot be; or bad, stale or uncertain, as it said",
            required=True,
        ),
        Column(
            "historical", "boolean", "whether the device stored the value and sent it later; null if it said nothing"
        ),
        Column("event_date", "date", "the date of event_time", required=True),
        *(_BATCH, _INGEST_DATE),
    ),
    (
        _NUMBERED,
        Constraint("record_counts_from_0", "record >= 0", pc.field("record") >= 0),
        Constraint(
            "event_time_is_labelled",
            "event_time_by IN ('device', 'gateway', 'landing')",
            pc.field("event_time_by").isin(["device", "gateway", "landing"]),
        ),
    ),
    partition="ingest_date",
    change_feed=True,
)
QUARANTINE = Table(
    "quarantine",
    "the messages that a person has to look at",
    (
        Column("kind", "string", "undecodable, conflict, or decoded", required=True),
        Column("reason", "string", "the fault, in a sentence", required=True),
        *(_ORIGIN, _EPOCH, _SEQ, _TOPIC, _PAYLOAD, _CONTENT_TYPE, _RECEIVED_AT, _LANDED_AT, _FILE, _BATCH),
        _INGEST_DATE,
    ),
    (
        _NUMBERED,
        Constraint(
            "kind_is_known",
            "kind IN ('undecodable', 'conflict', 'decoded')",
            pc.field("kind").isin(["undecodable", "conflict", "decoded"]),
        ),
    ),
    partition="ingest_date",
    change_feed=True,
)
_LO = Column("lo", "long", "the first number of the interval", required=True)
_HI = Column("hi", "long", "the last number of the interval", required=True)
_FIRST_BATCH = Column("first_batch", "long", "the first batch that added some of it", required=True)
_LAST_BATCH = Column("batch", "long", "the last batch that added some of it", required=True)
_GATEWAY = Column("gateway", "string", "the gateway of the route", required=True)
_ROUTE = Column("route", "string", "the route", required=True)
_NOT_EMPTY = Constraint("interval_is_not_empty", "lo <= hi", pc.field("lo") <= pc.field("hi"))

LEDGER = Table(
    "ledger",
    "the identities that arrived, as closed intervals of seq",
    (
        *(_ORIGIN, _EPOCH),
        Column("lo", "long", "the first seq of the interval", required=True),
        Column("hi", "long", "the last seq of the interval", required=True),
        *(_FIRST_BATCH, _LAST_BATCH),
    ),
    (_NOT_EMPTY,),
)
ARRIVALS = Table(
    "arrivals",
    "which batches brought a message: rows of the ledger, as they were before neighbours became one",
    LEDGER.columns,
    LEDGER.constraints,
)
BATCHES = Table(
    "batches",
    "one row for each batch: no row was lost",
    (
        Column("batch", "long", "its number", required=True),
        Column("checkpoint", "string", "the id of the checkpoint that it ran under", required=True),
        Column("files", "integer", "landing files; 0 in a batch of requarantine", required=True),
        Column("rows_in", "long", "the rows of these files, by their manifests", required=True),
        Column("new", "long", "rows that were new and could be decoded", required=True),
        Column("duplicates", "long", "rows that came before", required=True),
        Column("quarantined", "long", "rows in quarantine", required=True),
        Column("undecodable", "long", "of these, new rows that could not be decoded", required=True),
        Column(
            "conflicts",
            "long",
            "of these, rows whose identity came before with another payload or topic",
            required=True,
        ),
        Column("readings", "long", "rows added to readings", required=True),
        Column("planned_at", "timestamp", "when its files were chosen", required=True),
        Column("proved_at", "timestamp", "when this row was written", required=True),
    ),
    (
        Constraint(
            "rows_add_up",
            "rows_in = new + duplicates + quarantined",
            pc.field("rows_in") == pc.field("new") + pc.field("duplicates") + pc.field("quarantined"),
        ),
    ),
)
LINKS = Table(
    "links",
    "the numbers of each link that arrived, as closed intervals, which may overlap",
    (
        *(_GATEWAY, _ROUTE),
        Column("epoch", "string", "eight hexadecimal digits, drawn when the route began to number", required=True),
        *(_LO, _HI, _FIRST_BATCH, _LAST_BATCH),
    ),
    (_NOT_EMPTY,),
)
CROSSINGS = Table(
    "crossings",
    "which messages came over which link, and the numbers of the first and the last of them",
    (
        *(_ORIGIN, _EPOCH),
        Column("lo", "long", "the first seq of the run", required=True),
        Column("hi", "long", "the last seq of the run", required=True),
        *(_GATEWAY, _ROUTE),
        Column("link_epoch", "string", "the epoch of the link's numbers", required=True),
        Column("hop", "integer", "the place of the link on the way, from 1", required=True),
        Column("first_number", "long", "the link's number of the message `lo`", required=True),
        Column("last_number", "long", "the link's number of the message `hi`", required=True),
        *(_FIRST_BATCH, _LAST_BATCH),
    ),
    (_NOT_EMPTY,),
)
_STATED = (
    *(_GATEWAY, _ROUTE),
    Column("epoch", "string", "the epoch of the link's numbers", required=True),
    Column("statement", "long", "the statement's number in its epoch, from 1", required=True),
)
_STATED_AT = Column("stated_at", "timestamp", "when the statement was made, by its gateway's clock")
_ABOUT = (
    Column("origin", "string", "the maker of the messages; empty for ranges that are only counted", required=True),
    Column("origin_epoch", "string", "the epoch of the messages", required=True),
)
STATEMENTS = Table(
    "statements",
    "what routes say of the numbers that they gave",
    (
        *_STATED,
        Column("first", "long", "the first number that the statement covers", required=True),
        Column("last", "long", "the last one; first - 1 if it covers none", required=True),
        Column("backfill", "boolean", "whether the route had a backfill that no statement covers yet", required=True),
        Column("seq", "long", "the seq of the message with the statement", required=True),
        *(_STATED_AT, _BATCH),
    ),
)
STATEMENT_ORIGINS = Table(
    "statement_origins",
    "how many messages of each origin a statement covers",
    (
        *(*_STATED, *_ABOUT),
        Column("highest", "long", "the highest seq that the route has come past", required=True),
        Column("messages", "long", "how many messages the route handed on", required=True),
        Column("first", "long", "their lowest seq; 0 if there are none", required=True),
        Column("last", "long", "their highest seq; 0 if there are none", required=True),
        *(_STATED_AT, _BATCH),
    ),
)
STATEMENT_DROPPED = Table(
    "statement_dropped",
    "the ranges of dropped messages that a statement names",
    (
        *_STATED,
        Column("reason", "string", "why they were dropped", required=True),
        Column("consumer", "string", "what did not get them", required=True),
        *_ABOUT,
        Column("first", "long", "the lowest seq; 0 for messages that are only counted", required=True),
        Column("last", "long", "the highest seq", required=True),
        Column("messages", "long", "how many messages were dropped", required=True),
        *(_STATED_AT, _BATCH),
    ),
)
STATEMENT_REFUSED = Table(
    "statement_refused",
    "the numbers of messages that the next broker refused and that wait in the gateway, by statement",
    (*_STATED, _LO, _HI, _BATCH),
    (_NOT_EMPTY,),
)
STATEMENT_LEFT_OUT = Table(
    "statement_left_out",
    "the messages that a route left out on purpose, by its filters and rules, as a statement names them",
    (*_STATED, *_ABOUT, *(_LO, _HI, _BATCH)),
    (_NOT_EMPTY,),
)
LANDING_FILES = Table(
    "landing_files",
    "one row for each landing file that was ingested or set aside",
    (
        Column("file", "string", "its name", required=True),
        Column("lander", "string", "the lander"),
        Column("boot", "long", "the lander's boot"),
        Column("number", "long", "the lander's number of the file"),
        Column("rows", "long", "from its manifest"),
        Column("bytes", "long", "from its manifest"),
        Column("sha256", "string", "from its manifest"),
        Column("status", "string", "ingested or set aside", required=True),
        Column("reason", "string", "why it was set aside"),
        Column("batch", "long", "the batch that ingested it"),
        Column("recorded_at", "timestamp", "when this row was written", required=True),
    ),
)
FORGOTTEN = Table(
    "forgotten",
    "the identities of messages that were deleted because a device was forgotten, as closed intervals of seq",
    (
        *(_ORIGIN, _EPOCH),
        Column("lo", "long", "the first seq of the interval", required=True),
        Column("hi", "long", "the last seq of the interval", required=True),
        Column("forgotten_at", "timestamp", "when they were deleted", required=True),
    ),
    (Constraint("interval_is_not_empty", "lo <= hi", pc.field("lo") <= pc.field("hi")),),
)
CHECKS = Table(
    "checks",
    "one row for each check that was made of the tables",
    (
        Column("check", "string", "what was checked", required=True),
        Column("table", "string", "the table", required=True),
        Column("holds", "boolean", "whether there is no fault", required=True),
        Column("faults", "long", "how many rows, messages or files are not as they should be", required=True),
        Column("detail", "string", "the first fault or, without one, what was left out"),
        Column("checked_at", "timestamp", "when the checks began; the same for all rows of a run", required=True),
    ),
)
INGESTED = "ingested"
SET_ASIDE = "set aside"
"""The `status` of a landing file."""

STATEMENT_TABLES = (STATEMENTS, STATEMENT_ORIGINS, STATEMENT_DROPPED, STATEMENT_REFUSED, STATEMENT_LEFT_OUT)
DATA_TABLES = (BRONZE_MESSAGES, READINGS, QUARANTINE, LINKS, CROSSINGS, *STATEMENT_TABLES)
"""The tables that a batch writes in its tasks."""
TABLES = (*DATA_TABLES, LEDGER, ARRIVALS, BATCHES, LANDING_FILES, FORGOTTEN, CHECKS)
