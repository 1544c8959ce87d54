"""SenML in JSON by columns: what devices send most, resolved without a Python object for each record's result.

A pack is plain if its first record alone has base fields, and each record has one value: a number, a text or a boolean.
Every other payload is left to `senml.resolve`, which these results are the same as.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Annotated, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, Meta, UnsetType

from cloud.transforms import senml
from cloud.transforms.record import ABSOLUTE_TIME_S, TIME_MAX_S
from cloud.transforms.senml import COUNT_MAX, NotSenml

_BYTES_MAX = 65_536
"""The most bytes that a plain pack may resolve to."""
_TIME = pa.timestamp("us", "UTC")
_Count = Annotated[int, Meta(ge=-1, le=COUNT_MAX)]
Places: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]


class _Plain(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A record of a plain pack. No JSON number is NaN, so NaN stands for a missing one; so does a negative count."""

    bn: str | UnsetType = UNSET
    bt: float = math.nan
    bu: str | UnsetType = UNSET
    n: str = ""
    u: str | UnsetType = UNSET
    v: float = math.nan
    vs: str | UnsetType = UNSET
    vb: bool | UnsetType = UNSET
    t: float = 0.0
    boot: _Count = -1
    up: _Count = -1


_decode_pack = msgspec.json.Decoder(list[_Plain]).decode


def resolve_plain(payloads: Sequence[bytes | None], kind: pa.ListType) -> pa.ListArray:
    """Returns the records of each payload that is a plain pack, as lists of `kind`; null for the others."""
    packs = [None if payload is None else _parse(payload) for payload in payloads]
    found = [pack for pack in packs if pack is not None]
    counts = np.fromiter(map(len, found), np.int64, len(found))
    of_pack = np.repeat(np.arange(len(found)), counts)
    columns, sound = _resolve(found, of_pack, np.cumsum(counts) - counts)
    refused = np.zeros(len(found), bool)
    refused[of_pack[~sound]] = True
    places = np.flatnonzero([pack is not None for pack in packs])[~refused]
    lengths = np.zeros(len(packs), np.int64)
    lengths[places] = counts[~refused]
    is_plain = np.zeros(len(packs), bool)
    is_plain[places] = True
    rows = pa.table(columns)
    if refused.any():
        rows = rows.filter(pa.array(~refused[of_pack]))
    fields = list(kind.value_type)
    arrays = [rows[field.name].combine_chunks().cast(field.type) for field in fields]
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(arrays, fields=fields)).cast(kind)
    return lists if is_plain.all() else pc.if_else(pa.array(is_plain), lists, pa.scalar(None, kind))


def _parse(payload: bytes) -> list[_Plain] | None:
    """Returns the records of a pack that has no other fields than a plain one."""
    try:
        pack = _decode_pack(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return pack if pack and len(pack) * len(payload) <= _BYTES_MAX else None


def _resolve(packs: list[list[_Plain]], of_pack: Places, starts: Places) -> tuple[dict[str, pa.Array], Flags]:
    """Returns the columns of all records, and which of the records are as in a plain pack."""
    records = list(chain.from_iterable(packs))
    is_first = np.zeros(len(records), bool)
    is_first[starts] = True

    base_s = _floats(one.bt for one in records)
    boots, ups = (np.array(some, np.int64) for some in ([one.boot for one in records], [one.up for one in records]))
    values, strings, booleans = _floats(one.v for one in records), *_unset(records)
    base_names = [one.bn for one in records]
    base_units = [one.bu for one in records]
    no_base = np.isnan(base_s) & (boots < 0) & (ups < 0)
    no_base &= np.array([name is UNSET for name in base_names], bool)
    no_base &= np.array([unit is UNSET for unit in base_units], bool)
    has_value = (~np.isnan(values)).astype(np.int8) + ~strings + ~booleans == 1
    sound = (is_first | no_base) & has_value

    base_s = np.nan_to_num(base_s[starts], nan=0.0)[of_pack]
    with np.errstate(over="ignore"):  # a sum that is too large is infinite, and refused
        time_s = base_s + _floats(one.t for one in records)
    sound &= time_s < TIME_MAX_S
    absolute = sound & (time_s >= ABSOLUTE_TIME_S)
    time_us = np.rint(np.where(absolute, time_s, 0) * 1e6).astype(np.int64)

    has_boot = ((boots >= 0) & (ups >= 0))[starts][of_pack]
    with np.errstate(over="ignore", invalid="ignore"):
        uptime_ms = ups[starts][of_pack] + (time_s - time_s[starts][of_pack]) * 1000
    sound &= ~has_boot | (np.abs(uptime_ms) <= COUNT_MAX)
    uptime = np.rint(np.where(has_boot & sound, uptime_ms, 0)).astype(np.int64)

    to_pack = pa.array(of_pack)
    names = _texts([base_names[start] for start in starts]).fill_null("").take(to_pack)
    joined = pc.binary_join_element_wise(names, pa.array([one.n for one in records], pa.string()), "")
    coded = joined.dictionary_encode()
    devices, metrics, named = _split_names(coded.dictionary)
    sound &= named[coded.indices.to_numpy()]
    units = _texts([base_units[start] for start in starts]).take(to_pack)
    nothing = pa.nulls(len(records))
    return {
        "device": devices.take(coded.indices),
        "metric": metrics.take(coded.indices),
        "unit": pc.coalesce(_texts([one.u for one in records]), units),
        "time": pa.array(time_us, pa.int64(), mask=~absolute).cast(_TIME),
        "boot_id": pa.array(boots[starts][of_pack], mask=~has_boot),
        "uptime_ms": pa.array(uptime, mask=~has_boot),
        "value": pa.array(values, mask=np.isnan(values)),
        "value_string": nothing if strings.all() else _texts([one.vs for one in records]),
        "value_bool": nothing if booleans.all() else pa.array([_or_none(one.vb) for one in records], pa.bool_()),
        "value_data": nothing,
        "sum": nothing,
    }, sound


def _floats(numbers: Iterable[float]) -> npt.NDArray[np.float64]:
    return np.fromiter(numbers, np.float64)


def _unset(records: list[_Plain]) -> tuple[Flags, Flags]:
    """Says of each record whether it has no text, and whether it has no boolean."""
    strings = np.array([one.vs is UNSET for one in records], bool)
    return strings, np.array([one.vb is UNSET for one in records], bool)


def _texts(texts: list[str | UnsetType]) -> pa.Array:
    return pa.array([None if text is UNSET else text for text in texts], pa.string())


def _or_none(value: bool | UnsetType) -> bool | None:
    return None if value is UNSET else value


def _split_names(names: pa.Array) -> tuple[pa.Array, pa.Array, Flags]:
    """Returns device and metric of each name, and which of the names are names of SenML."""
    devices: list[str | None] = []
    metrics: list[str] = []
    sound = np.ones(len(names), bool)
    for place, name in enumerate(names.to_pylist()):
        try:
            device, metric = senml._split_name(name)
        except NotSenml:
            device, metric, sound[place] = None, "", False
        devices.append(device)
        metrics.append(metric)
    return pa.array(devices, pa.string()), pa.array(metrics, pa.string()), sound
