"""SenML in JSON by columns: what devices send most, resolved without a Python object for each record's result.

A pack is plain if its first record alone has base fields, and each record has one value: a number, a text or a boolean.
Every other payload is left to `senml.resolve`, which these results are the same as.
"""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, Meta, UnsetType

from cloud.transforms import senml
from cloud.transforms.record import ABSOLUTE_TIME_S, TIME_MAX_S
from cloud.transforms.sender.unique_keys import is_whole
from cloud.transforms.senml import COUNT_MAX, RELATIVE_MIN_S, NotSenml

_BYTES_MAX = 65_536
"""The most bytes that a plain pack may resolve to."""
_AT_ONCE = 1024
"""Payloads that are parsed before their fields become columns: few enough for their objects to stay in the cache."""
_TIME, _SPAN = pa.timestamp("us", "UTC"), pa.duration("us")
_Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
Places: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]


class _Plain(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A record of a plain pack. No JSON number is NaN, so NaN stands for a value or a time that is missing."""

    bn: str | UnsetType = UNSET
    bt: float | UnsetType = UNSET
    bu: str | UnsetType = UNSET
    n: str = ""
    u: str | UnsetType = UNSET
    v: float = math.nan
    vs: str | UnsetType = UNSET
    vb: bool | UnsetType = UNSET
    t: float = math.nan
    boot: _Count | UnsetType = UNSET
    up: _Count | UnsetType = UNSET


_decode_pack = msgspec.json.Decoder(list[_Plain]).decode


class _Fields(NamedTuple):
    """The fields of packs by columns. First block: one entry a record. Second block: one entry a pack.

    `has_base` says of each record whether it has a base field. A missing count is negative, a missing number NaN.
    """

    has_base: Flags
    n: pa.Array
    u: pa.Array
    v: npt.NDArray[np.float64]
    vs: pa.Array
    vb: pa.Array
    t: npt.NDArray[np.float64]

    records: Places
    bn: pa.Array
    bt: npt.NDArray[np.float64]
    bu: pa.Array
    boot: Places
    up: Places


def resolve_plain(payloads: Sequence[bytes | None], kind: pa.ListType) -> pa.ListArray:
    """Returns the records of each payload that is a plain pack, as lists of `kind`; null for the others."""
    parts = []
    parsed = []
    for first in range(0, len(payloads) or 1, _AT_ONCE):
        some = payloads[first : first + _AT_ONCE]
        packs, fields_of = _without_repeats(some, _parse(some))
        parsed += [pack is not None for pack in packs]
        parts.append(fields_of)
    fields = _Fields(*map(_joined, zip(*parts, strict=True)))
    of_pack = np.repeat(np.arange(len(fields.records)), fields.records)
    columns, sound = _resolve(fields, of_pack)
    refused = np.zeros(len(fields.records), bool)
    refused[of_pack[~sound]] = True
    places = np.flatnonzero(parsed)[~refused]
    lengths = np.zeros(len(parsed), np.int64)
    lengths[places] = fields.records[~refused]
    is_plain = np.zeros(len(parsed), bool)
    is_plain[places] = True
    rows = pa.table(columns)
    if refused.any():
        rows = rows.filter(pa.array(~refused[of_pack]))
    arrays = [rows[field.name].combine_chunks().cast(field.type) for field in kind.value_type]
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    records = pa.StructArray.from_arrays(arrays, fields=list(kind.value_type))
    lists = pa.ListArray.from_arrays(offsets, records).cast(kind)
    return lists if is_plain.all() else pc.if_else(pa.array(is_plain), lists, pa.scalar(None, kind))


def _parse(payloads: Sequence[bytes | None]) -> list[list[_Plain] | None]:
    """Returns the records of each pack that has no other fields than a plain one; None for other payloads."""
    packs: list[list[_Plain] | None] = []
    for payload in payloads:
        try:
            pack = _decode_pack(payload) if payload is not None else None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pack = None
        fits = pack and payload and len(pack) * len(payload) <= _BYTES_MAX
        packs.append(pack if fits else None)
    return packs


def _without_repeats(
    payloads: Sequence[bytes | None], packs: list[list[_Plain] | None]
) -> tuple[list[list[_Plain] | None], _Fields]:
    """Returns the packs of which no object has a key twice, and their columns; None for the others, of whose repeated
    keys the last values alone are parsed.

    As in `is_whole`, a payload with a key more has a colon more than what was parsed; here all are counted at once.
    """
    fields = _by_columns([pack for pack in packs if pack is not None])
    content = b"".join([payload for payload, pack in zip(payloads, packs, strict=True) if pack is not None and payload])
    if b"\\" in content or content.count(b":") != _count_colons(fields):
        packs = [
            pack if pack is not None and payload and is_whole(payload, pack) else None
            for payload, pack in zip(payloads, packs, strict=True)
        ]
        fields = _by_columns([pack for pack in packs if pack is not None])
    return packs, fields


def _count_colons(fields: _Fields) -> int:
    """Returns how many colons packs have as JSON: one behind each key, and those in texts.

    It is too small, which costs time alone, where a text is empty, or a pack has more than one record with base fields.
    """
    counts = [int(np.count_nonzero(~np.isnan(numbers))) for numbers in (fields.v, fields.t, fields.bt)]
    counts += [int(np.count_nonzero(numbers >= 0)) for numbers in (fields.boot, fields.up)]
    counts.append(len(fields.vb) - fields.vb.null_count)
    for texts in (fields.n, fields.bn):
        counts.append(pc.sum(pc.not_equal(texts, "")).as_py() or 0)
    counts += [len(texts) - texts.null_count for texts in (fields.u, fields.vs, fields.bu)]
    for texts in (fields.n, fields.bn, fields.u, fields.vs, fields.bu):
        counts.append(pc.sum(pc.count_substring(texts, ":")).as_py() or 0)
    return sum(counts)


def _by_columns(packs: list[list[_Plain]]) -> _Fields:
    firsts = [pack[0] for pack in packs]
    every = list(chain.from_iterable(packs))
    return _Fields(
        ~np.array([one.bn is one.bt is one.bu is one.boot is one.up is UNSET for one in every], bool),
        pa.array([one.n for one in every], pa.string()),
        _optional([one.u for one in every], pa.string()),
        np.array([one.v for one in every], np.float64),
        _optional([one.vs for one in every], pa.string()),
        _optional([one.vb for one in every], pa.bool_()),
        np.array([one.t for one in every], np.float64),
        np.array(list(map(len, packs)), np.int64),
        pa.array(["" if one.bn is UNSET else one.bn for one in firsts], pa.string()),
        np.array([math.nan if one.bt is UNSET else one.bt for one in firsts], np.float64),
        _optional([one.bu for one in firsts], pa.string()),
        np.array([-1 if one.boot is UNSET else one.boot for one in firsts], np.int64),
        np.array([-1 if one.up is UNSET else one.up for one in firsts], np.int64),
    )


def _joined(columns: Sequence[Any]) -> Any:
    return np.concatenate(columns) if isinstance(columns[0], np.ndarray) else pa.concat_arrays(columns)


def _optional(column: list[Any], kind: pa.DataType) -> pa.Array:
    """Returns the values of a field that records may lack."""
    missing = column.count(UNSET)
    if missing == len(column):
        return pa.nulls(len(column), kind)
    return pa.array([None if one is UNSET else one for one in column] if missing else column, kind)


def _resolve(fields: _Fields, of_pack: Places) -> tuple[dict[str, pa.Array], Flags]:
    """Returns the columns of all records, and which of the records are as in a plain pack."""
    starts = np.cumsum(fields.records) - fields.records
    sound = ~fields.has_base
    sound[starts] = True
    has_number = ~np.isnan(fields.v)
    sound &= has_number.astype(np.int8) + _is_there(fields.vs) + _is_there(fields.vb) == 1

    with np.errstate(over="ignore"):  # a sum that is too large is infinite, and refused
        time_s = np.nan_to_num(fields.bt)[of_pack] + np.nan_to_num(fields.t)
    sound &= time_s < TIME_MAX_S
    absolute = sound & (time_s >= ABSOLUTE_TIME_S)
    time_us = np.rint(np.where(absolute, time_s, 0) * 1e6).astype(np.int64)
    relative = sound & ~absolute & (time_s >= RELATIVE_MIN_S) & (time_s != 0)
    relative_us = np.rint(np.where(relative, time_s, 0) * 1e6).astype(np.int64)

    has_boot = ((fields.boot >= 0) & (fields.up >= 0))[of_pack]
    with np.errstate(over="ignore", invalid="ignore"):
        uptime_ms = fields.up[of_pack] + (time_s - time_s[starts][of_pack]) * 1000
    sound &= ~has_boot | (np.abs(uptime_ms) <= COUNT_MAX)
    uptime = np.rint(np.where(has_boot & sound, uptime_ms, 0)).astype(np.int64)

    devices, metrics, named = _name(fields, of_pack)
    sound &= named
    nothing = pa.nulls(len(of_pack))
    return {
        "device": devices,
        "metric": metrics,
        "unit": pc.coalesce(fields.u, fields.bu.take(pa.array(of_pack))) if fields.u.null_count else fields.u,
        "time": pa.array(time_us, pa.int64(), mask=~absolute).cast(_TIME),
        "boot_id": pa.array(fields.boot[of_pack], mask=~has_boot),
        "uptime_ms": pa.array(uptime, mask=~has_boot),
        "value": pa.array(fields.v, mask=~has_number),
        "value_string": fields.vs,
        "value_bool": fields.vb,
        "value_data": nothing,
        "sum": nothing,
        "quality": nothing,
        "historical": nothing,
        "relative": pa.array(relative_us, pa.int64(), mask=~relative).cast(_SPAN) if relative.any() else nothing,
    }, sound


def _is_there(column: pa.Array) -> Flags:
    found: Flags = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def _name(fields: _Fields, of_pack: Places) -> tuple[pa.Array, pa.Array, Flags]:
    """Returns device and metric of each record, and whether its name is one of SenML. The same names come often."""
    bases, names = fields.bn.dictionary_encode(), fields.n.dictionary_encode()
    count = len(names.dictionary) or 1
    both = bases.indices.to_numpy()[of_pack].astype(np.int64) * count + names.indices.to_numpy()
    coded = pa.array(both).dictionary_encode()
    base, own = np.divmod(coded.dictionary.to_numpy(), count)
    before, after = bases.dictionary.take(pa.array(base)), names.dictionary.take(pa.array(own))
    devices, metrics, sound = _split_names(pc.binary_join_element_wise(before, after, ""))
    return devices.take(coded.indices), metrics.take(coded.indices), sound[coded.indices.to_numpy()]


def _split_names(names: pa.Array) -> tuple[pa.Array, pa.Array, Flags]:
    """Returns device and metric of each name, and which of the names are names of SenML."""
    devices: list[str | None] = []
    metrics: list[str] = []
    sound = np.ones(len(names), bool)
    for place, name in enumerate(names.to_pylist()):
        try:
            device, metric = senml.split_name(name)
        except NotSenml:
            device, metric, sound[place] = None, "", False
        devices.append(device)
        metrics.append(metric)
    return pa.array(devices, pa.string()), pa.array(metrics, pa.string()), sound
