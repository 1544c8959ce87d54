"""What goes over one device's line, packet by packet, and whether MQTT allows it."""

import json

from wire.codec import to_client, to_server
from wire.codec.decoder import PacketDecoder
from wire.errors import RemoteProtocolError
from wire.identity import IDENTITY_PROPERTY, find_user_property
from wire.packets import Connack, Publish, Pubrel, Suback


class Witness:
    """Hears all connections of one device, as the tap of its `NetworkLink`.

    `violations` are sentences about what the device may not do: a repetition without DUP [MQTT-3.3.1-1] or with
    another packet identifier [MQTT-4.4.0-1], DUP in a new session, a PUBLISH after its PUBREL [MQTT-4.3.3-6].
    `answered` are the commands that it answers, `begun_anew`
    those with which the broker did the last of these: the device cannot know them again.
    """

    def __init__(self, name: str) -> None:
        self.violations: list[str] = []
        self.has_subscribed = False
        self.answered: set[str] = set()
        self.begun_anew: set[str] = set()
        self.repeated = 0
        self._name = name
        self._connection: object = None
        self._session_present = False
        self._identifiers: dict[str, int] = {}  # identity: packet identifier
        self._identities: dict[int, str] = {}  # packet identifier: the identity that had it last
        self._released: set[str] = set()  # identities
        self._commands: dict[int, str] = {}  # packet identifier: the command that had it last
        self._released_commands: set[str] = set()
        self._decoders: dict[bool, PacketDecoder] = {}

    def hear(self, connection: object, from_device: bool, data: bytes) -> None:
        if connection is not self._connection:
            self._connection = connection
            self._session_present = False
            self._decoders = {True: PacketDecoder(to_server.READERS), False: PacketDecoder(to_client.READERS)}
            self._decoders[False].add_reader(Suback)
        decoder = self._decoders[from_device]
        decoder.feed(data)
        try:
            while (packet := decoder.next_packet()) is not None:
                self._judge(packet, from_device)
        except RemoteProtocolError as error:
            self.violations.append(f"{self._name}: {'device' if from_device else 'broker'} sent nonsense: {error}")

    def _judge(self, packet: object, from_device: bool) -> None:
        if isinstance(packet, Connack):
            self._session_present = packet.session_present
        elif isinstance(packet, Suback):
            self.has_subscribed = True
        elif from_device and isinstance(packet, Publish):
            self._judge_publish(packet)
        elif isinstance(packet, (Publish, Pubrel)) and not from_device:
            self._hear_command(packet)
        elif from_device and isinstance(packet, Pubrel):
            self._released |= {self._identities.get(packet.packet_identifier, "")}

    def _hear_command(self, packet: Publish | Pubrel) -> None:
        assert packet.packet_identifier is not None
        if isinstance(packet, Pubrel):
            self._released_commands.add(self._commands.get(packet.packet_identifier, ""))
            return
        command = bytes(packet.payload).decode()
        self._commands[packet.packet_identifier] = command
        if command in self._released_commands:
            self.begun_anew.add(command)

    def _judge_publish(self, publish: Publish) -> None:
        if (command := command_of(publish.payload)) is not None:
            self.answered.add(command)
        identity = find_user_property(publish.properties, IDENTITY_PROPERTY)
        if identity is None or publish.packet_identifier is None:
            self.violations.append(f"{self._name}: a message without identity or packet identifier")
            return
        before = self._identifiers.get(identity)
        self._identifiers[identity] = publish.packet_identifier
        self._identities[publish.packet_identifier] = identity
        self.repeated += before is not None
        if before is not None and before != publish.packet_identifier:
            self.violations.append(f"{identity} came with packet identifiers {before} and {publish.packet_identifier}")
        if before is not None and self._session_present and not publish.dup:
            self.violations.append(f"{identity} was repeated without DUP")
        if publish.dup and not self._session_present:
            self.violations.append(f"{identity} came with DUP in a new session")
        if identity in self._released and self._session_present:
            self.violations.append(f"{identity} was published after its PUBREL")


def command_of(payload: bytes) -> str | None:
    """Of an answer the command; None where it is a reading's message."""
    content = json.loads(payload)
    return content["command"] if isinstance(content, dict) else None
