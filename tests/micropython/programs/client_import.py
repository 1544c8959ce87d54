"""Heap that a device's protocols take.

Prints the bytes of importing the serial link, of importing the client's end on top, of a connection, and what 200
messages of QoS 1 and 200 of QoS 2 leave behind once they are acknowledged.
"""

import gc


def allocated() -> int:
    gc.collect()
    return gc.mem_alloc()  # type: ignore[attr-defined]


at_work = afterwards = 0  # here, since a module's dict grows
before = allocated()

import wire.link  # noqa: E402, F401

linked = allocated()

from wire.codec.connect import Connect  # noqa: E402
from wire.connection.client import ClientConnection  # noqa: E402
from wire.properties import MAXIMUM_PACKET_SIZE, RECEIVE_MAXIMUM  # noqa: E402

imported = allocated()
client = ClientConnection(Connect("dev", False, 60, properties={RECEIVE_MAXIMUM: 8, MAXIMUM_PACKET_SIZE: 1024}))
client.connect(0)
client.data_to_send()
client.receive_data(b"\x20\x03\x00\x00\x00", 1)
client.next_event()


def receive(packet_type: int, identifier: int) -> None:
    client.data_to_send()
    client.receive_data(bytes((packet_type << 4, 2)) + identifier.to_bytes(2, "big"), 2)
    client.next_event()


def publish_and_be_acknowledged(count: int) -> None:
    for _ in range(count):
        identifier = client.publish("telemetry/garage", b"x" * 128)
        assert identifier is not None
        receive(4, identifier)
        identifier = client.publish("telemetry/garage", b"x" * 128, qos=2)
        assert identifier is not None
        receive(5, identifier)
        client.pubrel(identifier)
        receive(7, identifier)


publish_and_be_acknowledged(10)
at_work = allocated()
publish_and_be_acknowledged(200)
afterwards = allocated()
print(linked - before, imported - linked, at_work - imported, afterwards - at_work)
