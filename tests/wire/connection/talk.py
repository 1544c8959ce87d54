"""Short-hands for tests that play the peer of a connection."""

from tools.lab.testing.client import client_connection
from wire.codec.packets import Connack, Connect, Decoder, Packet, encode
from wire.connection import Connection
from wire.connection.client import ClientConnection
from wire.connection.server import ServerConnection

NOW_MS = 10_000


def sent(connection: Connection) -> list[Packet]:
    """The packets that wait for the transport."""
    decoder = Decoder(level=connection.protocol_level)
    decoder.feed(connection.data_to_send())
    packets = []
    while (packet := decoder.next_packet()) is not None:
        packets.append(packet)
    return packets


def events(connection: Connection, *packets: Packet | bytes, now_ms: int = NOW_MS) -> list:
    """What the application sees when the peer sends these packets."""
    for packet in packets:
        encoded = packet if isinstance(packet, bytes) else encode(packet, connection.protocol_level)
        connection.receive_data(encoded, now_ms)
    found = []
    while (event := connection.next_event()) is not None:
        found.append(event)
    return found


def connected_client(connack: Connack | None = None, **arguments) -> ClientConnection:
    """A client that has its CONNACK."""
    client = client_connection("dev", **arguments)
    client.connect(NOW_MS)
    sent(client)
    greeting = connack or Connack(False)
    assert events(client, greeting) == [greeting]
    return client


def connected_server(connect: Connect | None = None, properties: dict | None = None, **arguments) -> ServerConnection:
    """A server that has accepted a client."""
    server = ServerConnection(**arguments)
    greeting = connect or Connect("dev", keep_alive_s=60)
    assert events(server, greeting) == [greeting]
    server.accept(False, properties)
    sent(server)
    return server
