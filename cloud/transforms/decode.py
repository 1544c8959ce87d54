"""Decodes payloads into records: the column `decoded` of a frame of messages."""

import gc
from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from cloud.transforms.decoders import Outcome, decode_messages
from cloud.transforms.own_decoders import OwnDecoder
from cloud.transforms.record import Message, Record
from cloud.transforms.sparkplug import Births

_FIELDS = {
    "device": (pa.string(), "STRING"),
    "metric": (pa.string(), "STRING"),
    "unit": (pa.string(), "STRING"),
    "time": (pa.timestamp("us", "UTC"), "TIMESTAMP"),
    "boot_id": (pa.int64(), "BIGINT"),
    "uptime_ms": (pa.int64(), "BIGINT"),
    "value": (pa.float64(), "DOUBLE"),
    "value_string": (pa.string(), "STRING"),
    "value_bool": (pa.bool_(), "BOOLEAN"),
    "value_data": (pa.binary(), "BINARY"),
    "sum": (pa.float64(), "DOUBLE"),
}
"""The fields of a Record in their order, with their types in Arrow and in Spark."""
_RECORD = pa.struct([(name, arrow) for name, (arrow, _) in _FIELDS.items()])
_DECODED = pa.struct([("records", pa.list_(_RECORD)), ("problem", pa.string())])
_DECODED_DDL = "records ARRAY<STRUCT<{}>>, problem STRING".format(
    ", ".join(f"{name}: {spark}" for name, (_, spark) in _FIELDS.items())
)


def decode(rows: DataFrame, wanted: Column, own: Sequence[OwnDecoder] = (), births: Births | None = None) -> DataFrame:
    """Adds `records`, or the `problem` of the payload, to the `wanted` rows; both are null in the others."""

    def decode_columns(payloads: pa.Array, topics: pa.Array, content_types: pa.Array) -> pa.Array:
        columns = payloads.to_pylist(), topics.to_pylist(), content_types.to_pylist()
        return decode_payloads(*columns, own=own, births=births)

    # Spark takes the kind of function from its type hints, and warns where it is named as the stubs ask.
    decode_batch = sf.arrow_udf(decode_columns, _DECODED_DDL)  # type: ignore[call-overload]
    payload = sf.when(wanted, sf.col("payload"))
    decoded = rows.withColumn("decoded", decode_batch(payload, sf.col("topic"), sf.col("content_type")))
    return decoded.select("*", "decoded.records", "decoded.problem").drop("decoded")


def decode_payloads(
    payloads: Sequence[bytes | None],
    topics: Sequence[str],
    content_types: Sequence[str | None],
    own: Sequence[OwnDecoder] = (),
    births: Births | None = None,
) -> pa.Array:
    """Returns a struct for each payload, of its `records` or its `problem`; of None both are null."""
    messages = (
        Message(topic, content_type, payload)
        for payload, topic, content_type in zip(payloads, topics, content_types, strict=True)
        if payload is not None
    )
    # A batch has thousands of records and no cycles. The collector would look through all of them again and again.
    collects = gc.isenabled()
    gc.disable()
    try:
        return _decode(payloads, messages, own, births)
    finally:
        if collects:
            gc.enable()


def _decode(
    payloads: Sequence[bytes | None],
    messages: Iterable[Message],
    own: Sequence[OwnDecoder],
    births: Births | None,
) -> pa.Array:
    decoded = iter(decode_messages(messages, own, births))
    outcomes = [None if payload is None else next(decoded) for payload in payloads]
    try:
        return _to_structs(outcomes)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return _to_structs([_fitting(outcome) for outcome in outcomes])


def _to_structs(outcomes: Sequence[Outcome | None]) -> pa.Array:
    records: list[Record] = []
    starts: list[int | None] = []
    for outcome in outcomes:
        starts.append(len(records) if isinstance(outcome, list) else None)
        if isinstance(outcome, list):
            records += outcome
    problems = [outcome if isinstance(outcome, str) else None for outcome in outcomes]
    columns = zip(*records, strict=True) if records else ([] for _ in _FIELDS)
    fields = [pa.array(column, arrow) for column, (arrow, _) in zip(columns, _FIELDS.values(), strict=True)]
    lists = pa.ListArray.from_arrays(
        pa.array([*starts, len(records)], pa.int32()), pa.StructArray.from_arrays(fields, fields=list(_RECORD))
    )
    return pa.StructArray.from_arrays([lists, pa.array(problems, pa.string())], fields=list(_DECODED))


def _fitting(outcome: Outcome | None) -> Outcome | None:
    """Returns the outcome, or a problem in its place if its records fit no row."""
    try:
        _to_structs([outcome])
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        return f"its records fit no row: {type(error).__name__}"
    return outcome
