"""Readings of one moment as one SenML pack (RFC 8428, section 5), in JSON."""

import json


def encode_pack(client_id: str, samples: list, boot_id: int, uptime_ms: int, unix_ms: int | None) -> bytes:
    """`samples` is a list of (name, unit or None, number or text or truth), at least one.

    The first record also carries what holds for all: the base name `client_id:`, the base time where it is known, and
    the fields `boot` and `up`, by which a device without a clock tells the moment; others ignore them (section 4.4).
    """
    fields: list = ['"bn":' + json.dumps(client_id + ":")]
    if unix_ms is not None:
        fields.append(f'"bt":{unix_ms // 1000}.{unix_ms % 1000:03d}')  # a board's own floats do not hold it
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
