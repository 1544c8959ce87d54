"""PINGREQ, DISCONNECT and packets that no client sends (sections 2.1, 3.12 to 3.15)."""

from tools.lab.check.outcome import Failed
from tools.lab.check.subject import Broker
from tools.lab.check.suite import check
from wire import properties as p
from wire import reasons
from wire.codec import frame
from wire.codec.packets import Disconnect, Pingreq, Pingresp, Publish, Will

# Packets of good length with flags that their type does not have.
BAD_FLAGS = {
    "puback": b"\x41\x02\x00\x01",
    "pubrec": b"\x52\x02\x00\x01",
    "pubcomp": b"\x74\x02\x00\x01",
    "pingreq": b"\xc1\x00",
}
# Packets that only a server sends, or that MQTT does not have.
NOT_FROM_CLIENTS = {
    "type_0": b"\x00\x00",
    "connack": b"\x20\x02\x00\x00",
    "suback": b"\x90\x03\x00\x01\x00",
    "unsuback": b"\xb0\x02\x00\x01",
    "pingresp": b"\xd0\x00",
}
# Packets whose fields do not fill their length, or go beyond it.
BAD_LENGTHS = {
    "remaining_length_of_five_bytes": b"\xc0\x80\x80\x80\x80\x01",
    "publish_shorter_than_its_topic_name": b"\x30\x04\x00\x09aa",
    "publish_of_qos_1_without_packet_identifier": b"\x32\x03\x00\x01a",
    "puback_of_one_byte": b"\x40\x01\x00",
    "pubrel_of_one_byte": b"\x62\x01\x00",
    "subscribe_without_options": b"\x82\x05\x00\x01\x00\x01a",
    "subscribe_shorter_than_its_filter": b"\x82\x05\x00\x01\x00\x09a",
    "unsubscribe_shorter_than_its_filter": b"\xa2\x05\x00\x01\x00\x09a",
    "pingreq_with_a_body": b"\xc0\x01\x00",
}
# The same in MQTT 5.
BAD_LENGTHS_5 = {
    "publish_shorter_than_its_properties": b"\x30\x05\x00\x01a\x09\x01",
    "publish_with_a_property_cut_off": b"\x30\x05\x00\x01a\x01\x02",
    "publish_with_an_unknown_property": b"\x30\x06\x00\x01a\x02\x7f\x00",
    "publish_with_a_property_of_connect": b"\x30\x07\x00\x01a\x03\x21\x00\x01",
    "subscribe_without_properties": b"\x82\x02\x00\x01",
    "subscribe_without_options": b"\x82\x06\x00\x01\x00\x00\x01a",
    "puback_with_an_unknown_reason_code": b"\x40\x03\x00\x01\x01",
    "disconnect_with_an_unknown_reason_code": b"\xe0\x01\x01",
    "disconnect_with_a_property_of_publish": b"\xe0\x04\x00\x02\x01\x01",
}


@check(v3="3.12.4-1", v5="3.12.4-1")
async def a_pingreq_is_answered(broker: Broker) -> None:
    client = await broker.connect()
    await client.send(Pingreq(), Pingreq())
    await client.expect(Pingresp)
    await client.expect(Pingresp)


@check(v3="2.2.2-1 2.2.2-2", v5="2.1.3-1 4.13.1-1", cases=BAD_FLAGS)
async def reserved_flags_close_the_connection(broker: Broker, packet: bytes) -> None:
    await broker.expect_closed(packet, reasons.MALFORMED_PACKET, reasons.PROTOCOL_ERROR)


@check(v3="4.8.0-1", v5="4.13.1-1", cases=NOT_FROM_CLIENTS)
async def a_packet_that_no_client_sends_closes_the_connection(broker: Broker, packet: bytes) -> None:
    await broker.expect_closed(packet, reasons.PROTOCOL_ERROR, reasons.MALFORMED_PACKET)


@check(v3="4.8.0-1")
async def an_auth_closes_the_connection_of_an_older_client(broker: Broker) -> None:
    await broker.expect_closed(frame(0xF0, b""))


@check(v3="4.8.0-1", cases=BAD_LENGTHS)
async def a_packet_that_does_not_fit_its_length_closes_the_connection(broker: Broker, packet: bytes) -> None:
    await broker.expect_closed(packet)


@check(v5="4.13.1-1 2.2.2-1", cases=BAD_LENGTHS_5)
async def a_malformed_packet_closes_the_connection(broker: Broker, packet: bytes) -> None:
    await broker.expect_closed(packet, reasons.MALFORMED_PACKET, reasons.PROTOCOL_ERROR)


@check(v5="1.5.5-1 4.13.1-1")
async def a_length_of_more_bytes_than_it_needs_closes_the_connection(broker: Broker) -> None:
    await broker.expect_closed(b"\x30\x88\x00\x00\x05hello\x00", reasons.MALFORMED_PACKET)


@check(v5="3.15.1-1")
async def an_auth_with_flags_closes_the_connection(broker: Broker) -> None:
    await broker.expect_closed(b"\xf1\x00", reasons.MALFORMED_PACKET, reasons.PROTOCOL_ERROR)


@check(v3="3.14.1-1", v5="3.14.1-1")
async def a_disconnect_with_flags_closes_the_connection_and_is_none(broker: Broker) -> None:
    topic, watcher = broker.topic(), await broker.connect()
    await watcher.subscribe(topic)
    client = await broker.connect(will=Will(topic, b"will"))
    await client.send(b"\xe1\x00")
    await client.expect_closed(reasons.MALFORMED_PACKET)
    await watcher.receive(topic=topic, payload=b"will")


@check(v3="3.14.4-1 3.14.4-2", v5="3.14.4-1")
async def nothing_behind_a_clients_disconnect_is_processed(broker: Broker) -> None:
    topic, watcher, client = await broker.watched()
    await client.send(Disconnect(), Publish(topic, b"behind a DISCONNECT"))
    await client.close()
    await watcher.publish(topic, b"marker")
    await watcher.receive(payload=b"marker")


@check(v5="3.14.4-1 3.14.4-2 3.14.2-1 3.14.2-2 4.13.2-1")
async def nothing_follows_a_disconnect_of_the_broker(broker: Broker) -> None:
    client = await broker.connect()
    await client.send(broker.connect_packet(client.client_id), Pingreq(), Pingreq())
    await client.expect_closed(reasons.PROTOCOL_ERROR)
    for packet in client.received[1:]:
        if not isinstance(packet, Disconnect) or p.SESSION_EXPIRY_INTERVAL in packet.properties:
            raise Failed("DISCONNECT and an end", repr(packet))
