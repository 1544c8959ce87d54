"""Attacks by column batches of a client that may identify others."""

from tools.lab.torture.attacks.line import connected
from tools.lab.torture.attacks.peer import EVERYTHING, Peer
from wire.bulk.batch_encoder import ColumnBatchEncoder
from wire.bulk.column_batch import CONTENT_TYPE, MESSAGES_MAX
from wire.codec.packets import MQTT_5, Publish, encode
from wire.primitives import encode_string
from wire.properties import CONTENT_TYPE as CONTENT_TYPE_PROPERTY
from wire.properties import USER_PROPERTY


def _worst() -> bytes:
    """Returns a batch with as many topic names, properties, origins and gateways as it may have."""
    encoder = ColumnBatchEncoder()
    for number in range(MESSAGES_MAX):
        block = bytes((USER_PROPERTY,)) + encode_string(f"{number:x}") + encode_string("")
        encoder.add(f"t/{number:x}", b"", 1, False, block, f"o{number:x}", 1, 1, 0, f"g{number:x}")
    return encoder.encode()


async def column_batches(port: int, other: int) -> None:
    """Column batches, each with 65,535 origins, topic names and properties."""
    packet = Publish("b", _worst(), 1, packet_identifier=1, properties={CONTENT_TYPE_PROPERTY: CONTENT_TYPE})
    encoded = encode(packet, MQTT_5)
    async with connected(port, "batches") as line:
        while True:
            await line.write(encoded)
            await line.answered(4)


ATTACKS = (Peer(column_batches, rules=EVERYTHING),)
