"""Decodes payloads into records: the column `decoded` of a frame of messages."""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from cloud.transforms.senml import NotSenml, Record, resolve, resolve_cbor
from wire.bulk.column_batch import CONTENT_TYPE as COLUMN_BATCH
from wire.bulk.column_batch import MalformedBatch, decode_batch


def decode_landed_batch(payload: bytes) -> list[Record]:
    """Returns no records of the row that stands for a batch whose messages have landed; its payload is empty.

    Raises NotSenml for a batch that the lander could not decode.
    """
    if not payload:
        return []
    try:
        decode_batch(payload)
    except MalformedBatch as error:
        raise NotSenml(f"a column batch that cannot be decoded: {error}") from None
    raise NotSenml("a column batch that the lander could not decode")


DECODERS = {
    "": resolve,
    "application/senml+json": resolve,
    "application/json": resolve,
    "application/senml+cbor": resolve_cbor,
    COLUMN_BATCH: decode_landed_batch,
}
"""The decoder of each content type that may be SenML, and of column batches; "" stands for a message without one."""

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


def decode(rows: DataFrame, wanted: Column) -> DataFrame:
    """Adds `records`, or the `problem` of the payload, to the `wanted` rows; both are null in the others."""
    # Spark takes the kind of function from its type hints, and warns where it is named as the stubs ask.
    decode_columns = sf.arrow_udf(_decode_columns, _DECODED_DDL)  # type: ignore[call-overload]
    payload = sf.when(wanted, sf.col("payload"))
    decoded = rows.withColumn("decoded", decode_columns(payload, sf.col("content_type")))
    return decoded.select("*", "decoded.records", "decoded.problem").drop("decoded")


def decode_payloads(payloads: Sequence[bytes | None], content_types: Sequence[str | None]) -> pa.Array:
    """Returns a struct for each payload, of its `records` or its `problem`; of None both are null."""
    records: list[Record] = []
    starts: list[int | None] = []
    problems: list[str | None] = []
    for payload, content_type in zip(payloads, content_types, strict=True):
        decoded, problem = _decode_one(payload, content_type)
        starts.append(None if decoded is None else len(records))
        records += decoded or []
        problems.append(problem)
    columns = zip(*records, strict=True) if records else ([] for _ in _FIELDS)
    fields = [pa.array(column, arrow) for column, (arrow, _) in zip(columns, _FIELDS.values(), strict=True)]
    lists = pa.ListArray.from_arrays(
        pa.array([*starts, len(records)], pa.int32()), pa.StructArray.from_arrays(fields, fields=list(_RECORD))
    )
    return pa.StructArray.from_arrays([lists, pa.array(problems, pa.string())], fields=list(_DECODED))


def _decode_columns(payloads: pa.Array, content_types: pa.Array) -> pa.Array:
    return decode_payloads(payloads.to_pylist(), content_types.to_pylist())


def _decode_one(payload: bytes | None, content_type: str | None) -> tuple[list[Record] | None, str | None]:
    """Returns the records or the problem of one payload."""
    if payload is None:
        return None, None
    decoder = DECODERS.get((content_type or "").partition(";")[0].strip().lower())
    if decoder is None:
        return None, f"nothing here decodes content type {content_type!r}"
    try:
        return decoder(payload), None
    except NotSenml as error:
        return None, str(error)
