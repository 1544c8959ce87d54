"""Decodes payloads into records, as columns of Arrow."""

import gc
from collections.abc import Iterable, Sequence

import pyarrow as pa

from cloud.transforms.decoders import Outcome, decode_messages
from cloud.transforms.own_decoders import OwnDecoder
from cloud.transforms.record import Message, Record
from cloud.transforms.sparkplug import Births

_FIELDS = {
    "device": pa.string(),
    "metric": pa.string(),
    "unit": pa.string(),
    "time": pa.timestamp("us", "UTC"),
    "boot_id": pa.int64(),
    "uptime_ms": pa.int64(),
    "value": pa.float64(),
    "value_string": pa.string(),
    "value_bool": pa.bool_(),
    "value_data": pa.binary(),
    "sum": pa.float64(),
    "quality": pa.string(),
    "historical": pa.bool_(),
    "relative": pa.duration("us"),
}
"""The fields of a Record in their order, with their types."""
_RECORD = pa.struct(list(_FIELDS.items()))
_DECODED = pa.struct([("records", pa.list_(_RECORD)), ("problem", pa.string())])


def decode_payloads(
    payloads: Sequence[bytes | None],
    topics: Sequence[str],
    content_types: Sequence[str | None],
    own: Sequence[OwnDecoder] = (),
    births: Births | None = None,
    received_us: Sequence[int | None] = (),
    landed_us: Sequence[int | None] = (),
) -> pa.Array:
    """Returns a struct for each payload, of its `records` or its `problem`; of None both are null.

    received_us, landed_us: of each payload (µs since 1970), as in Message; empty if they are not known.
    """
    unknown = [None] * len(payloads)
    columns = (topics, content_types, payloads, received_us or unknown, landed_us or unknown)
    messages = (
        Message(topic, content_type, payload, received, landed)
        for topic, content_type, payload, received, landed in zip(*columns, strict=True)
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
    fields = [pa.array(column, arrow) for column, arrow in zip(columns, _FIELDS.values(), strict=True)]
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
