"""What a sender says of the quality of a value, in the words of the column `quality`."""

GOOD, BAD, STALE, UNCERTAIN = "good", "bad", "stale", "uncertain"
WORDS = (GOOD, BAD, STALE, UNCERTAIN)
_STALE_CODE = 500


def of_code(code: int) -> str:
    """Returns the quality of a code of Sparkplug (0, 192, 500), or of OPC DA, whose highest bits decide."""
    if code == _STALE_CODE:
        return STALE
    if 192 <= code < 256:
        return GOOD
    return UNCERTAIN if 64 <= code < 128 else BAD


def of_field(said: object) -> str | None:
    """Returns the quality that a field of JSON says: a boolean, a code or a word. None for what is not understood."""
    if isinstance(said, bool):
        return GOOD if said else BAD
    if isinstance(said, int) and (said in (0, _STALE_CODE) or 64 <= said < 256):
        return of_code(said)
    if isinstance(said, str) and said.lower() in WORDS:
        return said.lower()
    return None


def of_status(said: object) -> str | None:
    """Returns the quality of a StatusCode of OPC UA (part 4, section 7.39): a code, a symbol, or an object of both."""
    if isinstance(said, dict):
        said = said.get("Code", said.get("Symbol"))
    if isinstance(said, str):
        return next((word for word in (GOOD, BAD, UNCERTAIN) if said.lower().startswith(word)), None)
    if isinstance(said, int) and not isinstance(said, bool) and 0 <= said < 1 << 32:
        return (GOOD, UNCERTAIN, BAD, BAD)[said >> 30]
    return None
