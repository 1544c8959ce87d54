"""Encodes the readings of one moment as one SenML pack in JSON (RFC 8428, section 5)."""

import json


def encode_pack(client_id: str, samples: list, boot_id: int, uptime_ms: int, unix_ms: int | None) -> bytes:
    """`samples` is a list of (name, unit or None, number or text or truth), at least one.

    The first record also has the fields that hold for all records: the base name `client_id:`, the base time if it is
    known, and `boot` and `up`, which tell the moment even without a clock. Other receivers ignore those two (section
    4.4).
    """
    fields: list = ['"bn":' + json.dumps(client_id + ":")]
    if unix_ms is not None:
        fields.append(f'"bt":{unix_ms // 1000}.{unix_ms % 1000:03d}')  # text, because a board's floats are too inexact
    fields += [f'"boot":{boot_id}', f'"up":{uptime_ms}']
    records = []
    opening = "[{"
    for name, unit, value in samples:
        fields.append('"n":' + json.dumps(name))
        if unit is not None:
            fields.append('"u":' + json.dumps(unit))
        label = "vs" if isinstance(value, str) else "vb" if isinstance(value, bool) else "v"
        fields.append(f'"{label}":{json.dumps(value)}')
        records.append((opening + ",".join(fields) + "}").encode())
        fields, opening = [], ",{"
    records.append(b"]")
    return b"".join(records)
