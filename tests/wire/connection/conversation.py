"""A client and a server that talk over a path which splits the bytes anywhere; runs on both VMs."""

from tools.lab.sim.virtual_line import Dice
from wire.codec.packets import Connack, Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe
from wire.connection.client import ClientConnection
from wire.connection.server import ServerConnection
from wire.errors import LocalProtocolError
from wire.properties import MAXIMUM_PACKET_SIZE, RECEIVE_MAXIMUM, TOPIC_ALIAS_MAXIMUM


class Party:
    """One end: what it sent, what it received, what it has to answer and in which order."""

    def __init__(self, connection) -> None:
        self.connection = connection
        self.sent: list = []
        self.received: list = []
        self.answers: list = []  # (method of the connection, packet identifier)
        self.on_the_way: list = []  # packet identifiers
        self.incoming = b""

    def say(self, dice: Dice) -> None:
        """Publishes, answers, or does nothing."""
        what = dice.roll(5)
        connection = self.connection
        if what < 2 and connection.send_quota:
            payload = dice.bytes(dice.roll(300))
            qos = dice.roll(3)
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
            self.answer(dice.roll(4))

    def answer(self, count: int) -> None:
        for answer, identifier in self.answers[:count]:
            answer(identifier)
        self.answers = self.answers[count:]

    def hear(self) -> None:
        event = self.connection.next_event()
        while event is not None:
            self._hear(event)
            event = self.connection.next_event()

    def _hear(self, event) -> None:
        connection = self.connection
        if isinstance(event, Publish):
            self.received.append((event.payload, event.qos))
            if event.qos:
                answer = connection.puback if event.qos == 1 else connection.pubrec
                self.answers.append((answer, event.packet_identifier))
        elif isinstance(event, Pubrec):
            self.answers.append((connection.pubrel, event.packet_identifier))
        elif isinstance(event, Pubrel):
            self.answers.append((connection.pubcomp, event.packet_identifier))
        elif isinstance(event, (Puback, Pubcomp)):
            self.on_the_way.remove(event.packet_identifier)
        elif isinstance(event, Connect):
            connection.accept(False)
        elif isinstance(event, Subscribe):
            connection.suback(event.packet_identifier, [0])
        else:
            assert isinstance(event, (Connack, Suback)), event


def converse(seed: int, steps: int, level: int) -> None:
    """Everything sent arrives in order and once, and every QoS 1 and 2 message is acknowledged."""
    dice = Dice(seed)
    client = ClientConnection(
        Connect(
            "c",
            keep_alive_s=60,
            properties={
                RECEIVE_MAXIMUM: 1 + dice.roll(9),
                MAXIMUM_PACKET_SIZE: 400 + dice.roll(999),
                TOPIC_ALIAS_MAXIMUM: dice.roll(6),
            },
            protocol_level=level,
        )
    )
    server = ServerConnection(
        receive_maximum=1 + dice.roll(9), maximum_packet_size=65_535, topic_alias_maximum=dice.roll(6)
    )
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
    for step in range(6):  # let the rest arrive, then the acknowledgements of both ends, three long
        for here, there in ways:
            there.connection.receive_data(there.incoming + here.connection.data_to_send(), steps + step)
            there.incoming = b""
            there.hear()
            there.answer(65_535)
    for here, there in ways:
        assert here.sent == there.received
        assert here.on_the_way == []
