"""A client and a server that talk over a path which splits the bytes anywhere; runs on both VMs."""

from tests.wire.link_world import Dice
from wire.client import ClientConnection
from wire.errors import LocalProtocolError
from wire.packets import Connack, Connect, Puback, Publish, Suback, Subscribe
from wire.properties import MAXIMUM_PACKET_SIZE
from wire.server import ServerConnection


class Party:
    """One end: what it sent, what it received, what it has acknowledged."""

    def __init__(self, connection) -> None:
        self.connection = connection
        self.sent: list = []
        self.received: list = []
        self.unacknowledged: list = []
        self.on_the_way: list = []  # packet identifiers, oldest first
        self.incoming = b""

    def say(self, dice: Dice) -> None:
        """Publishes, acknowledges, or does nothing."""
        what = dice.roll(5)
        connection = self.connection
        if what < 2 and connection.send_quota:
            payload = bytes([dice.roll(256) for _ in range(dice.roll(300))])
            qos = dice.roll(2)
            identifier = connection.publish("t/" + str(dice.roll(9)), payload, qos=qos)
            self.sent.append((payload, qos))
            if qos:
                self.on_the_way.append(identifier)
        elif what == 2 and connection.connected and not connection.send_quota:
            try:
                connection.publish("t", b"", qos=1)
                raise AssertionError("a full window took a message")
            except LocalProtocolError:
                pass
        elif what == 3:
            self.acknowledge(dice.roll(4))

    def acknowledge(self, count: int) -> None:
        for identifier in self.unacknowledged[:count]:
            self.connection.puback(identifier)
        self.unacknowledged = self.unacknowledged[count:]

    def hear(self) -> None:
        event = self.connection.next_event()
        while event is not None:
            if isinstance(event, Publish):
                self.received.append((event.payload, event.qos))
                if event.qos:
                    self.unacknowledged.append(event.packet_identifier)
            elif isinstance(event, Puback):
                self.on_the_way.remove(event.packet_identifier)
            elif isinstance(event, Connect):
                self.connection.accept(False)
            elif isinstance(event, Subscribe):
                self.connection.suback(event.packet_identifier, [0])
            else:
                assert isinstance(event, (Connack, Suback)), event
            event = self.connection.next_event()


def converse(seed: int, steps: int) -> None:
    """Everything sent arrives in order, and every QoS 1 message is acknowledged."""
    dice = Dice(seed)
    client = ClientConnection("c", receive_maximum=1 + dice.roll(9), maximum_packet_size=400 + dice.roll(999))
    server = ServerConnection(receive_maximum=1 + dice.roll(9), maximum_packet_size=65_535)
    parties = (Party(client), Party(server))
    ways = (parties, (parties[1], parties[0]))
    client.connect(0)
    asked = False
    for step in range(steps):
        for here, there in ways:
            there.incoming += here.connection.data_to_send()
            length = dice.roll(len(there.incoming) + 1)
            there.connection.receive_data(there.incoming[:length], step)
            there.incoming = there.incoming[length:]
            there.hear()
            here.say(dice)
        if client.connected and not asked:
            asked = client.subscribe([("t", 0)]) > 0
    for step in range(2):  # let the rest arrive, then the acknowledgements
        for here, there in ways:
            there.connection.receive_data(there.incoming + here.connection.data_to_send(), steps + step)
            there.incoming = b""
            there.hear()
            there.acknowledge(65_535)
    parties[0].connection.receive_data(server.data_to_send(), steps)
    parties[0].hear()
    assert server.connect_packet is not None
    assert server.connect_packet.properties[MAXIMUM_PACKET_SIZE] == client.maximum_packet_size
    for here, there in ways:
        assert here.sent == there.received
        assert here.on_the_way == []
