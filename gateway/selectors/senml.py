"""The readings of a SenML payload in JSON (RFC 8428), as selectors see them."""

import msgspec

from gateway.selectors.values import Value


class _Record(msgspec.Struct):
    """A record before it is resolved (section 5, table 2). Other fields are ignored."""

    bn: str | None = None
    bt: float | None = None
    bv: float | None = None
    n: str = ""
    v: float | None = None
    vs: str | None = None
    vb: bool | None = None
    t: float = 0.0


_decode_pack = msgspec.json.Decoder(list[_Record]).decode


def moments_of(payload: bytes) -> list[dict[str, Value]]:
    """Returns the values of the readings by their names, one moment for each time; one empty moment without any.

    A name is without its base name, and, where the record has no other, the last part of the base name.
    """
    try:
        pack = _decode_pack(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return [{}]
    base_name, base_time_s, base_value = "", 0.0, None
    moments: dict[float, dict[str, Value]] = {}
    for record in pack:
        base_name = base_name if record.bn is None else record.bn
        base_time_s = base_time_s if record.bt is None else record.bt
        base_value = base_value if record.bv is None else record.bv
        value: Value = record.vb if record.vs is None else record.vs
        if value is None:
            value = base_value if record.v is None else record.v + (base_value or 0)
        moments.setdefault(base_time_s + record.t, {})[record.n] = value
    return list(moments.values()) or [{}]
