"""How readings are written: the formats, and what a message says of its own."""

JSON, CBOR = "json", "cbor"
FORMATS = (CBOR, JSON)
SENML_JSON, SENML_CBOR = "application/senml+json", "application/senml+cbor"

ARRAY_LENGTHS = {b"\x98": 1, b"\x99": 2}  # bytes, where the length does not stand in the first
BASES = (b"\x21", b"\x22")  # base name and base time, as the first key of the first record


def encoder(name: str):
    """`encode_pack` of that format; only the one in use is loaded."""
    if name == CBOR:
        from device import senml_cbor

        return senml_cbor.encode_pack
    from device import senml

    return senml.encode_pack


def content_type(payload: bytes) -> str | None:
    """Of a message in flash, which may be older than the configuration: by how our packs begin. None for what a program
    of the user's own has stored, which says nothing of its kind."""
    if payload[:7] == b'[{"bn":':
        return SENML_JSON
    at = 1 + ARRAY_LENGTHS.get(bytes(payload[:1]), 0)
    if (
        b"\x80" < payload[:1] < b"\xa0"
        and b"\xa0" < payload[at : at + 1] < b"\xc0"
        and payload[at + 1 : at + 2] in BASES
    ):
        return SENML_CBOR
    return None
