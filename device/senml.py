"""Readings of one moment as one SenML pack (RFC 8428, section 5), in JSON."""

import json

CONTENT_TYPE = "application/senml+json"


def encode_pack(client_id: str, samples: list, boot_id: int, uptime_ms: int, unix_seconds: float | None) -> bytes:
    """`samples` is a list of (name, unit, value), at least one.

    The first record also carries what holds for all: the base name `client_id:`, the base time where it is known, and
    the fields `boot` and `up`, by which a device without a clock tells the moment; others ignore them (section 4.4).
    """
    fields: list = [("bn", client_id + ":")]
    if unix_seconds is not None:
        fields.append(("bt", unix_seconds))
    fields += [("boot", boot_id), ("up", uptime_ms)]
    records = []
    for name, unit, value in samples:
        fields += [("n", name), ("u", unit), ("v", value)]
        records.append("{" + ",".join([f'"{label}":{json.dumps(content)}' for label, content in fields]) + "}")
        fields = []
    return ("[" + ",".join(records) + "]").encode()
