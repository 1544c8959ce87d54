"""Rows of the data tables from landed rows, column by column: no object is made for a row.

A message's problem, which brings it to quarantine, is of its payload or of the time that a gateway gave it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloud.transforms.decode import decode_payloads
from cloud.transforms.decoders import is_senml
from cloud.transforms.own_decoders import OwnDecoder
from cloud.transforms.sender.quality import GOOD
from cloud.transforms.senml_columns import resolve_plain
from cloud.transforms.sparkplug import Births

TIME_END_MS = 253_402_300_800_000
"""The end of the year 9999, where timestamps end."""
EARLIEST = pa.scalar(978_307_200_000_000, pa.timestamp("us", "UTC"))
"""The beginning of the year 2001. A clock that was never set begins at 1970, 1978, 1980 or 2000."""
AHEAD = pa.scalar(86_400_000_000, pa.duration("us"))
"""A time that is later than the landing by more than a day is wrong: only clocks go ahead, not messages."""
WRONG_TIME = "wrong time"
UNDECODABLE, CONFLICT, DECODED = "undecodable", "conflict", "decoded"
"""The kinds of rows in `quarantine`."""
CONFLICT_REASON = "the same identity came before with another payload, or on another topic"
TIME_REASON = "the gateway's time of acceptance is beyond the year 9999"
_NOW = pa.scalar(0, pa.duration("us"))
_OF_READING = ["origin", "epoch", "seq", "topic"]
_TIME = pa.timestamp("us", "UTC")
_RECORDS = decode_payloads([], [], []).type.field("records").type


class Landed(NamedTuple):
    """Messages as they were landed, and for each its times as timestamps, and its landing file.

    `landed_at` is never null: if a lander's clock cannot be right, it is the time when the batch was planned.
    """

    messages: pa.Table
    received_at: pa.Array
    landed_at: pa.Array
    problems: pa.Array
    files: pa.Array
    batch: int

    def add_problems(self, problems: dict[int, str]) -> "Landed":
        """Returns the messages with problems of some of them, by their place. A problem that is there stays."""
        if not problems:
            return self
        texts = [found or problems.get(place) for place, found in enumerate(self.problems.to_pylist())]
        return self._replace(problems=pa.array(texts, pa.string()))

    def slice(self, first: int, length: int) -> "Landed":
        """Returns ``length`` messages from the place ``first`` on."""
        return self._replace(
            messages=self.messages.slice(first, length),
            received_at=self.received_at.slice(first, length),
            landed_at=self.landed_at.slice(first, length),
            problems=self.problems.slice(first, length),
            files=self.files.slice(first, length),
        )

    def take(self, places: pa.Array) -> "Landed":
        return self._replace(
            messages=self.messages.take(places),
            received_at=self.received_at.take(places),
            landed_at=self.landed_at.take(places),
            problems=self.problems.take(places),
            files=self.files.take(places),
        )


def read_times(messages: pa.Table, planned_ms: int | None, file: str, batch: int) -> Landed:
    """Returns landed messages with their times. A time beyond the year 9999 is null, and a problem of the message.

    planned_ms: takes the place of a landing time beyond the year 9999 (Unix time, ms).
    """
    received_ms, landed_ms = (messages[name].combine_chunks() for name in ("received_ms", "landed_ms"))
    fits = _is_time(received_ms)
    problems = pc.if_else(pc.fill_null(fits, True), pa.scalar(None, pa.string()), pa.scalar(TIME_REASON, pa.string()))
    landed_ms = pc.if_else(_is_time(landed_ms), landed_ms, planned_ms)
    files = pa.repeat(pa.scalar(file), len(messages))
    return Landed(
        messages, _timestamps(pc.if_else(fits, received_ms, None)), _timestamps(landed_ms), problems, files, batch
    )


def read_quarantine(rows: pa.Table, batch: int) -> Landed:
    """Returns the undecodable messages of `quarantine` as they were landed. A time that does not fit stays a problem.

    rows: with the epoch as a number.
    """
    messages = rows.select(["origin", "epoch", "seq", "topic", "payload", "content_type"])
    reasons = rows["reason"].combine_chunks()
    problems = pc.if_else(pc.equal(reasons, TIME_REASON), reasons, pa.scalar(None, pa.string()))
    received_at, landed_at, files = (rows[name].combine_chunks() for name in ("received_at", "landed_at", "file"))
    return Landed(messages, received_at, landed_at, problems, files, batch)


def decode(landed: Landed, own: Sequence[OwnDecoder] = (), births: Births | None = None) -> Landed:
    """Returns the messages with the column `records`, a list for each, and the problems of their payloads.

    own: decoders of one's own; births: the births of Sparkplug B, both as `decode_messages` takes them.
    """
    payloads, problems = landed.messages["payload"].combine_chunks(), landed.problems
    nothing = pa.scalar(None, payloads.type)
    senml = pc.and_(_are_senml(landed.messages, own), problems.is_null())
    records = resolve_plain(pc.if_else(senml, payloads, nothing).to_pylist(), _RECORDS)
    others = pc.and_(records.is_null(), problems.is_null())
    if pc.any(others).as_py():
        topics, content_types = (landed.messages[name].to_pylist() for name in ("topic", "content_type"))
        waiting = pc.if_else(others, payloads, nothing).to_pylist()
        moments = [times.cast(pa.int64()).to_pylist() for times in (landed.received_at, landed.landed_at)]
        decoded = decode_payloads(waiting, topics, content_types, own, births, *moments)
        problems = pc.coalesce(problems, decoded.field("problem"))
        records = pc.coalesce(records, decoded.field("records"))  # of each message at most one of the two has some
    return landed._replace(messages=landed.messages.append_column("records", records), problems=problems)


def _are_senml(messages: pa.Table, own: Sequence[OwnDecoder]) -> pa.Array:
    """Says of each message whether it is decoded as SenML in JSON, by one look at each topic with a content type."""
    topics, types = (
        messages[name].combine_chunks().dictionary_encode(null_encoding="encode") for name in ("topic", "content_type")
    )
    width = len(types.dictionary) or 1
    kinds = pa.array(topics.indices.to_numpy().astype(np.int64) * width + types.indices.to_numpy()).dictionary_encode()
    topic, content_type = np.divmod(kinds.dictionary.to_numpy(), width)
    named = zip(
        topics.dictionary.take(pa.array(topic)).to_pylist(),
        types.dictionary.take(pa.array(content_type)).to_pylist(),
        strict=True,
    )
    return pa.array([is_senml(*kind, own) for kind in named], pa.bool_()).take(kinds.indices)


def bronze_rows(landed: Landed) -> pa.Table:
    """Returns a row of `bronze_messages` for each message."""
    names = ("origin", "seq", "topic", "payload", "qos", "retain", "content_type", "gateway", "lander")
    columns = {name: landed.messages[name] for name in names}
    return pa.table({**columns, **_common(landed)})


def reading_rows(landed: Landed) -> pa.Table:
    """Returns a row of `readings` for each record of decoded messages."""
    records = landed.messages["records"].combine_chunks()
    counts = pc.fill_null(pc.list_value_length(records), 0).to_numpy()
    of_message = np.repeat(np.arange(len(counts)), counts)
    places = np.arange(len(of_message)) - np.repeat(np.cumsum(counts) - counts, counts)
    values = records.flatten()
    fields = {field.name: values.field(field.name) for field in values.type}
    of_row = landed._replace(messages=landed.messages.select(_OF_READING))  # to copy payloads takes long
    message = of_row.take(pa.array(of_message, pa.int64()))
    origins = message.messages["origin"].combine_chunks()
    relative, said = fields.pop("relative"), fields["quality"]
    by_device, by_gateway = (
        _plausible(fields["time"], message.landed_at),
        _plausible(message.received_at, message.landed_at),
    )
    arrived = pc.if_else(by_gateway, message.received_at, message.landed_at)
    ahead = pc.fill_null(pc.greater(relative, _NOW), False)
    if pc.sum(pc.is_valid(relative)).as_py():
        arrived = pc.if_else(ahead, arrived, pc.add(arrived, pc.fill_null(relative, _NOW)))
    event_time = pc.if_else(by_device, fields["time"], arrived)
    named_by = pc.case_when(pc.make_struct(by_device, by_gateway), "device", "gateway", "landing")
    wrong = pc.or_(pc.and_(pc.is_valid(fields["time"]), pc.invert(by_device)), ahead)
    by_time = pc.if_else(wrong, WRONG_TIME, GOOD)
    fields["quality"] = pc.if_else(pc.fill_null(pc.not_equal(said, GOOD), False), said, by_time)
    return pa.table(
        {
            **fields,
            "device": pc.coalesce(fields["device"], origins),
            **{name: message.messages[name] for name in ("origin", "seq", "topic")},
            **_common(message),
            "record": pa.array(places, pa.int32()),
            "event_time": event_time,
            "event_time_by": named_by,
            "event_date": event_time.cast(pa.date32()),
        }
    )


def quarantine_rows(landed: Landed, kind: str, reasons: pa.Array) -> pa.Table:
    """Returns a row of `quarantine` for each message, with the reason."""
    columns = {name: landed.messages[name] for name in ("origin", "seq", "topic", "payload", "content_type")}
    rows = len(landed.messages)
    return pa.table({**columns, **_common(landed), "kind": pa.repeat(pa.scalar(kind), rows), "reason": reasons})


def write_epochs(epochs: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Returns epochs as they are written everywhere: eight hexadecimal digits."""
    numbers = epochs.combine_chunks() if isinstance(epochs, pa.ChunkedArray) else epochs
    coded = pc.dictionary_encode(numbers)
    texts = pa.array([f"{number:08x}" for number in coded.dictionary.to_pylist()], pa.string())
    return texts.take(coded.indices)


def read_epochs(rows: pa.Table) -> pa.Table:
    """Returns rows of a table with the epochs as numbers, which `write_epochs` has written."""
    coded = pc.dictionary_encode(rows["epoch"].combine_chunks())
    numbers = pa.array([int(text, 16) for text in coded.dictionary.to_pylist()], pa.int64()).take(coded.indices)
    return rows.set_column(rows.schema.get_field_index("epoch"), "epoch", numbers)


def _common(landed: Landed) -> dict[str, object]:
    rows = len(landed.messages)
    return {
        "epoch": write_epochs(landed.messages["epoch"]),
        "received_at": landed.received_at,
        "landed_at": landed.landed_at,
        "file": landed.files,
        "batch": pa.repeat(pa.scalar(landed.batch, pa.int64()), rows),
    }


def _is_time(milliseconds: pa.Array) -> pa.Array:
    return pc.and_(pc.greater_equal(milliseconds, 0), pc.less(milliseconds, TIME_END_MS))


def _timestamps(milliseconds: pa.Array) -> pa.Array:
    return milliseconds.cast(pa.timestamp("ms", "UTC")).cast(_TIME)


def _plausible(times: pa.Array, landed_at: pa.Array) -> pa.Array:
    """Says of each time whether it can be right; a missing one cannot."""
    in_time = pc.less_equal(times, pc.add(landed_at, AHEAD))
    return pc.fill_null(pc.and_(pc.greater_equal(times, EARLIEST), in_time), False)
