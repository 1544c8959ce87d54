"""Topics, identity, byte stuffing and windows: the same on MicroPython as on CPython."""

from wire.connection.windows import SendWindow
from wire.errors import LocalProtocolError, WireError
from wire.identity import decode_identity, encode_identity
from wire.link.frames import stuff, unstuff
from wire.primitives import Reader, encode_string
from wire.topics import check_topic_filter, check_topic_name, matches, parse_shared


def refused(error, function, *arguments):
    try:
        function(*arguments)
    except error:
        return True
    return False


assert matches("a/+/#", "a/b") and not matches("#", "$SYS/a") and parse_shared("$share/g/a/#") == ("g", "a/#")
assert all(refused(WireError, check_topic_filter, bad) for bad in ("", "a#", "+a", "a/#/b", "$share/g", "a\0"))
assert all(refused(WireError, check_topic_name, bad) for bad in ("", "+", "a/#", "a" * 65_536))

assert encode_identity("garage/é", 31, 42) == "0000001f/42/garage/é"
assert decode_identity("0000001f/42/garage/é") == ("garage/é", 31, 42)
assert decode_identity("ffffffff/9223372036854775807/x") == ("x", 0xFFFFFFFF, 2**63 - 1)
bad_identities = ("", "1f/42/a", "0000001F/42/a", "0000001f/042/a", "0000001f/0/a", "0000001f/42/", "zz/1/a", "0/1_0/a")
assert all(refused(ValueError, decode_identity, bad) for bad in bad_identities)

for plain in (b"", b"\0", b"a\0\0b", b"\1" * 254, b"\1" * 600 + b"\0" + b"\2" * 253):
    encoded = stuff(plain)
    assert encoded.find(b"\0") < 0 and unstuff(encoded) == plain
assert refused(WireError, unstuff, b"\x05ab")

assert Reader(encode_string("é𝄞€")).string() == "é𝄞€"
window = SendWindow(2)
assert (window.acquire(65_535), window.acquire(), window.quota) == (65_535, 1, 0)
assert refused(LocalProtocolError, window.acquire)
