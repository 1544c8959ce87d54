"""The content type of a stored message, which its first bytes tell."""

SENML_JSON, SENML_CBOR = "application/senml+json", "application/senml+cbor"

ARRAY_LENGTHS = {b"\x98": 1, b"\x99": 2}  # length bytes after the first byte of a longer CBOR array
BASES = (b"\x21", b"\x22")  # base name or base time, the first key of the first record


def content_type(payload: bytes) -> str | None:
    """Returns the content type of a message in flash, recognized by its first bytes.

    The configuration does not tell it, because the message may be older. None for a message that a user's own program
    has stored.
    """
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
