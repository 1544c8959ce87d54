"""SenML (RFC 8428) in JSON and in CBOR, in plain Python: a pack's records, resolved.

Two fields are Holdfast's: `boot` and `up` give the boot and the uptime (ms) of the record that has them. The records
after it get theirs by the difference in time. Other readers ignore the two fields, as section 4.4 asks.
"""

import base64
import binascii
import math
import re
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from cloud.transforms.record import ABSOLUTE_TIME_S, RECORDS_MAX, TEXT_SLACK, TIME_MAX_S, Allowance, Record, Undecodable
from cloud.transforms.sender.unique_keys import check_unique, is_whole
from host import cbor

VERSION = 10
COUNT_MAX = 2**53
"""The largest boot id or uptime (ms) that a JSON number carries exactly."""
_LABELS = dict(
    zip(
        (-1, -2, -3, -4, -5, -6, 0, 1, 2, 3, 4, 5, 6, 7, 8),
        ("bver", "bn", "bt", "bu", "bv", "bs", "n", "u", "v", "vs", "vb", "s", "t", "ut", "vd"),
        strict=True,
    )
)
"""The labels of CBOR (section 6, table 4). Extensions have texts as labels."""
RELATIVE_MIN_S = -(2**28)
"""Eight years: a time that lies further before now than the largest lies behind it is none."""
_KNOWN_NAME_MAX = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9\-:./_]*")


class NotSenml(Undecodable):
    """A payload is not SenML. The text says what is wrong with it."""


class _Packed(msgspec.Struct, omit_defaults=True):
    """A record of the pack before it is resolved (section 5, table 2). Other fields are ignored."""

    bn: str | UnsetType = UNSET
    bt: float | UnsetType = UNSET
    bu: str | UnsetType = UNSET
    bv: float | UnsetType = UNSET
    bs: float | UnsetType = UNSET
    bver: int | UnsetType = UNSET
    n: str = ""
    u: str | UnsetType = UNSET
    v: float | UnsetType = UNSET
    vs: str | UnsetType = UNSET
    vb: bool | UnsetType = UNSET
    vd: str | UnsetType = UNSET
    s: float | UnsetType = UNSET
    t: float = 0.0
    ut: float | UnsetType = UNSET
    boot: Any = None
    up: Any = None


_decode_pack = msgspec.json.Decoder(list[_Packed]).decode


def resolve(payload: bytes) -> list[Record]:
    """Returns the records of a pack in JSON, each complete in itself (section 4.6). Raises NotSenml."""
    try:
        pack = _decode_pack(payload)
        if b'_"' in payload or not is_whole(payload, pack):
            fields = msgspec.json.decode(payload)
            check_unique(payload, fields)
            _check_mandatory(fields)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotSenml(str(error)) from None
    return _resolve(pack, len(payload))


def resolve_cbor(payload: bytes) -> list[Record]:
    """Returns the records of a pack in CBOR, as `resolve` does of JSON. Raises NotSenml."""
    try:
        pack = cbor.decode(payload)
        _check_length(pack)
        records = [_labelled(record) for record in pack] if isinstance(pack, list) else pack
        packed = msgspec.convert(records, list[_Packed])
    except (cbor.NotCbor, msgspec.MsgspecError) as error:
        raise NotSenml(str(error)) from None
    _check_mandatory(records)
    return _resolve(packed, len(payload))


def _labelled(record: Any) -> Any:
    """Returns a record of CBOR as it would be in JSON. Unknown labels are ignored."""
    if not isinstance(record, dict):
        return record
    labelled = {key: item for key, item in record.items() if isinstance(key, str) and key not in _LABELS.values()}
    for key, label in _LABELS.items():
        if key in record:
            labelled[label] = record[key]
    if not all(math.isfinite(item) for item in labelled.values() if isinstance(item, float)):
        raise NotSenml("a number is not finite")
    if "vd" in labelled:
        if not isinstance(labelled["vd"], bytes):
            raise NotSenml("vd is not a byte string")
        labelled["vd"] = base64.urlsafe_b64encode(labelled["vd"]).decode()
    return labelled


def _resolve(pack: list[_Packed], payload_bytes: int) -> list[Record]:
    _check_length(pack)
    # No record has more text than the pack, so most packs are too small to exceed the allowance.
    allowance = Allowance(payload_bytes) if len(pack) * payload_bytes > TEXT_SLACK else None
    bases = _Bases()
    records = []
    for index, packed in enumerate(pack):
        try:
            records.append(bases.resolve(packed))
            if allowance:
                allowance.take(records[-1])
        except Undecodable as error:
            raise NotSenml(f"record {index}: {error}") from None
    return records


def _check_length(pack: Any) -> None:
    """Raises NotSenml for a list with too many records. Something else than a list is left to others."""
    if not isinstance(pack, list):
        return
    if len(pack) > RECORDS_MAX:
        raise NotSenml(f"it resolves to more than {RECORDS_MAX} records")


class _Bases:
    """The base fields: each holds from its record on, until another record has the same field (section 4.1)."""

    def __init__(self) -> None:
        self._name = ""
        self._time_s = 0.0
        self._unit: str | None = None
        self._value: float | UnsetType = UNSET
        self._sum: float | UnsetType = UNSET
        self._boot: tuple[int, float, float] | None = None  # boot id, uptime (ms), and the record's time (s)

    def resolve(self, packed: _Packed) -> Record:
        self._take(packed)
        time_s = self._time_s + packed.t
        if time_s >= TIME_MAX_S:
            raise NotSenml(f"time {time_s} is beyond the year 9999; SenML counts seconds")
        if _is_count(packed.boot) and _is_count(packed.up):
            self._boot = (packed.boot, packed.up, time_s)
        boot_id, uptime_ms = self._uptime(time_s)
        name = self._name + packed.n
        device, metric = split_name(name)
        value, value_data = self._values(packed)
        return Record(
            device,
            metric,
            self._unit if packed.u is UNSET else packed.u,
            round(time_s * 1e6) if time_s >= ABSOLUTE_TIME_S else None,
            boot_id,
            uptime_ms,
            value,
            None if packed.vs is UNSET else packed.vs,
            None if packed.vb is UNSET else packed.vb,
            value_data,
            _add(self._sum, packed.s),
            relative_us=relative_us(time_s),
        )

    def _take(self, packed: _Packed) -> None:
        if packed.bver is not UNSET and packed.bver > VERSION:
            raise NotSenml(f"version {packed.bver} is newer than {VERSION}")
        if packed.bn is not UNSET:
            self._name = packed.bn
        if packed.bt is not UNSET:
            self._time_s = packed.bt
        if packed.bu is not UNSET:
            self._unit = packed.bu
        if packed.bv is not UNSET:
            self._value = packed.bv
        if packed.bs is not UNSET:
            self._sum = packed.bs

    def _uptime(self, time_s: float) -> tuple[int | None, int | None]:
        if self._boot is None:
            return None, None
        boot_id, told_ms, told_at_s = self._boot
        uptime_ms = told_ms + (time_s - told_at_s) * 1000
        if not abs(uptime_ms) <= COUNT_MAX:  # this form refuses NaN as well
            raise NotSenml(f"uptime {uptime_ms} ms is out of range")
        return boot_id, round(uptime_ms)

    def _values(self, packed: _Packed) -> tuple[float | None, bytes | None]:
        """Returns the number and the data. Raises NotSenml unless there is one value, or a sum (section 4.2)."""
        others = (packed.vs is not UNSET) + (packed.vb is not UNSET) + (packed.vd is not UNSET)
        if others + (packed.v is not UNSET) > 1:
            raise NotSenml("more than one value")
        if others:
            return None, None if packed.vd is UNSET else _decode_data(packed.vd)
        value = _add(self._value, packed.v)
        if value is None and _add(self._sum, packed.s) is None:
            raise NotSenml("neither a value nor a sum")
        return value, None


def relative_us(time_s: float) -> int | None:
    """Returns the µs from now to a time that is relative to now (section 4.5.3); None for now, and for other times."""
    return round(time_s * 1e6) if RELATIVE_MIN_S <= time_s < ABSOLUTE_TIME_S and time_s else None


def _add(base: float | UnsetType, own: float | UnsetType) -> float | None:
    """Adds a base field and its field. A missing one counts as zero; None when both are missing (section 4.5)."""
    if own is UNSET:
        return None if base is UNSET else base
    if base is UNSET:
        return own
    total = base + own
    if not math.isfinite(total):
        raise NotSenml(f"{base} and {own} have a sum that is not finite")
    return total


def split_name(name: str) -> tuple[str | None, str]:
    """Returns device and metric: the parts of the name before and after its last ':' or '/' (section 4.5.1).

    Raises NotSenml for what is no name.
    """
    return _split_known_name(name) if len(name) <= _KNOWN_NAME_MAX else _split_name(name)


def _split_name(name: str) -> tuple[str | None, str]:
    if not _NAME.fullmatch(name):
        raise NotSenml(f"{name[:64]!r} is not a name of SenML" if name else "no name")
    cut = max(name.rfind(":"), name.rfind("/"))
    return (name[:cut], name[cut + 1 :]) if cut > 0 else (None, name)


_split_known_name = lru_cache(maxsize=10_000)(_split_name)  # the same names come again and again


def _decode_data(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise NotSenml(f"vd is not base64url: {error}") from None


def _is_count(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= COUNT_MAX and value == int(value)


def _check_mandatory(pack: list[dict[str, Any]]) -> None:
    """Raises NotSenml for a label that ends with '_': such a field must be understood or refused (section 4.4)."""
    for index, record in enumerate(pack):
        for label in record:
            if label.endswith("_"):
                raise NotSenml(f"record {index}: field {label!r} must be understood, and is not")
