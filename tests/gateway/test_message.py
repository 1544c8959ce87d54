"""Identity and provenance: taken from the message where they can be read, given where there are none."""

import tracemalloc

import pytest

from gateway.message import identity_properties, message_from, plain_properties
from wire.codec.decoder import PacketDecoder
from wire.codec.packets import Publish
from wire.codec.requests import TO_SERVER
from wire.properties import CONTENT_TYPE, TOPIC_ALIAS, USER_PROPERTY


def accepted(*user_properties: tuple[str, str]) -> tuple[tuple[str, int, int], tuple[int, str], list[tuple[str, str]]]:
    packet = Publish("a", b"", 1, packet_identifier=1, properties={USER_PROPERTY: list(user_properties)})
    message = message_from(packet, "client", "gw", 1234)
    rest = message.properties.get(USER_PROPERTY, [])
    return (message.origin, message.epoch, message.seq), (message.received_ms, message.received_by), rest


def test_a_message_without_identity_waits_for_one() -> None:
    assert accepted(("a", "b")) == (("", 0, 0), (1234, "gw"), [("a", "b")])


def test_an_identity_and_a_provenance_are_kept() -> None:
    identity, received, rest = accepted(("hf-id", "0000002a/7/dev/ice"), ("hf-received", "99/first"))
    assert (identity, received, rest) == (("dev/ice", 42, 7), (99, "first"), [])


def test_a_provenance_without_an_identity_is_not_believed() -> None:
    assert accepted(("hf-received", "99/first"), ("a", "b")) == (("", 0, 0), (1234, "gw"), [("a", "b")])


TOO_LONG = f"0000002a/7/{257 * 'x'}"


@pytest.mark.parametrize(
    "bad", ["", "x", "0000002a/0/device", "2a/7/device", "0000002a/7/", "0000002a/-7/device", TOO_LONG]
)
def test_an_identity_that_cannot_be_read_travels_on_as_rejected(bad: str) -> None:
    identity, _, rest = accepted(("a", "b"), ("hf-id", bad), ("c", "d"))
    assert identity == ("", 0, 0)
    assert rest == [("a", "b"), ("hf-id-rejected", bad), ("c", "d")]


def test_a_provenance_that_cannot_be_read_travels_on_as_rejected() -> None:
    _, received, rest = accepted(("hf-received", "yesterday/first"))
    assert received == (1234, "gw")
    assert rest == [("hf-received-rejected", "yesterday/first")]


def test_a_gateway_with_a_name_of_257_bytes_had_no_message_before() -> None:
    of_256, of_257 = "99/" + 128 * "é", "99/" + 128 * "é" + "x"
    identity, received, _ = accepted(("hf-id", "0000002a/7/device"), ("hf-received", of_256))
    assert (identity, received) == (("device", 42, 7), (99, 128 * "é"))
    identity, received, rest = accepted(("hf-id", "0000002a/7/device"), ("hf-received", of_257))
    assert (identity, received, rest) == (("device", 42, 7), (1234, "gw"), [("hf-received-rejected", of_257)])


def test_the_first_identity_counts() -> None:
    identity, _, rest = accepted(("hf-id", "0000002a/7/device"), ("hf-id", "0000002a/8/device"))
    assert identity == ("device", 42, 7)
    assert rest == [("hf-id-rejected", "0000002a/8/device")]


def test_what_belongs_to_one_connection_does_not_travel() -> None:
    packet = Publish("a", b"", 1, packet_identifier=1, properties={TOPIC_ALIAS: 3, CONTENT_TYPE: "text/plain"})
    message = message_from(packet, "client", "gw", 1234)
    message.origin, message.epoch, message.seq = "gw", 42, 7
    assert plain_properties(message) == {CONTENT_TYPE: "text/plain"}
    assert identity_properties(message) == {
        CONTENT_TYPE: "text/plain",
        USER_PROPERTY: [("hf-id", "0000002a/7/gw"), ("hf-received", "1234/gw")],
    }


def test_what_user_properties_take_in_memory_counts_for_the_size() -> None:
    """A packet of five bytes for each makes a dozen times as much of it in memory."""
    tracemalloc.start()
    message = message_from(decode_publish([("", "")] * 10_000), "client", "gw", 1234)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < message.size < 4 * taken


def decode_publish(user_properties: list[tuple[str, str]]) -> Publish:
    encoded = Publish("a", b"", 1, packet_identifier=1, properties={USER_PROPERTY: user_properties}).encode()
    decoder = PacketDecoder(TO_SERVER)
    decoder.feed(encoded)
    packet = decoder.next_packet()
    assert isinstance(packet, Publish)
    return packet
