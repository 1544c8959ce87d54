"""Headers: what goes out comes back as it was."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.message import Message
from uplink.foreign.headers import decode, encode, identity_of, read_identity
from wire import properties
from wire.hops import HOPS_PROPERTY
from wire.identity import IDENTITY_PROPERTY, RECEIVED_PROPERTY

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)
NAME = TEXT.filter(lambda text: not text.startswith("hf-"))


@given(pairs=st.lists(st.tuples(NAME, TEXT), max_size=6), origin=TEXT.filter(bool), data=st.binary(max_size=20))
def test_properties_identity_and_hops_come_back(pairs: list[tuple[str, str]], origin: str, data: bytes) -> None:
    found = {
        properties.USER_PROPERTY: [*pairs, (HOPS_PROPERTY, "0000001f")],
        properties.CONTENT_TYPE: "text/plain; charset=é",
        properties.RESPONSE_TOPIC: "answers/ü",
        properties.CORRELATION_DATA: data,
    }
    if not data:
        del found[properties.CORRELATION_DATA]
    message = Message("a", b"", properties=found, origin=origin, epoch=7, seq=9, received_ms=5, received_by="gé 1")
    headers = encode(message, "00000020", with_headers=True, with_properties=True)
    assert all(value.isascii() and value == value.strip() and "\n" not in value for value in headers.values())
    assert all(name.isascii() and name for name in headers)
    back = decode(headers, read_identity(identity_of(message)), "all")
    hops = [(HOPS_PROPERTY, "0000001f"), (HOPS_PROPERTY, "00000020")]
    ours = [(IDENTITY_PROPERTY, f"00000007/9/{origin}"), (RECEIVED_PROPERTY, "5/gé 1")]
    assert sorted(back.pop(properties.USER_PROPERTY)) == sorted([*pairs, *hops, *ours])
    del found[properties.USER_PROPERTY]
    assert back == found


@given(headers=st.dictionaries(TEXT, TEXT, max_size=5))
def test_headers_of_others_never_stop_an_import(headers: dict[str, str]) -> None:
    names = ["mqtt-user-properties", "mqtt-correlation-data", "mqtt-expiry", "hf-hops", "hf-received", "Nats-Msg-Id"]
    decode(headers | dict(zip(names, headers.values(), strict=False)), "", "all")


def test_the_mode_says_which_headers_count() -> None:
    headers = {"Content-Type": "a/b", "k": "v"}
    assert decode(headers, "", "none") == {}
    assert decode(headers, "", "type") == {properties.CONTENT_TYPE: "a/b"}
    assert decode(headers, "", "all") == {properties.CONTENT_TYPE: "a/b", properties.USER_PROPERTY: [("k", "v")]}
