"""Judges each packet on one device's line: whether MQTT allows it."""

import json

from wire.codec.decoder import TO_CLIENT, PacketDecoder
from wire.codec.packets import Connack, Publish, Pubrel, Suback, Unsuback
from wire.codec.requests import TO_SERVER
from wire.errors import RemoteProtocolError
from wire.identity import IDENTITY_PROPERTY, find_user_property
from wire.reasons import UNSPECIFIED_ERROR


class Witness:
    """Hears all connections of one device, as the tap of its `NetworkLink`.

    `violations` are sentences about what the device may not do: a repetition without DUP [MQTT-3.3.1-1] or with
    another packet identifier [MQTT-4.4.0-1], DUP in a new session, a PUBLISH after its PUBREL [MQTT-4.3.3-6], except of
    what was sent in a lost session before; and about a broker that loses a session by itself.
    `answered` are the commands that it answers, `begun_anew` those with which the broker did the last of these: the
    device cannot know them again. `heard` are all commands in the order in which they came, repetitions included.
    `resent` are the messages that go out in a second session.
    """

    def __init__(self, name: str) -> None:
        self.violations: list[str] = []
        self.has_subscribed = False
        self.answered: set[str] = set()
        self.begun_anew: set[str] = set()
        self.heard: list[str] = []
        self.resent: set[str] = set()
        self.repeated = 0
        self._name = name
        self._connection: object = None
        self._has_session = False
        self._session_present = False  # as the last CONNACK said
        self._identifiers: dict[str, int] = {}  # identity: packet identifier
        self._identities: dict[int, str] = {}  # packet identifier: the identity that had it last
        self._sent: set[str] = set()  # identities, in this session
        self._sent_before: set[str] = set()  # in earlier ones
        self._released: set[str] = set()  # whose PUBREL went
        self._commands: dict[int, str] = {}  # packet identifier: the command that had it last
        self._released_commands: set[str] = set()
        self._decoders: dict[bool, PacketDecoder] = {}

    def hear(self, connection: object, from_device: bool, data: bytes) -> None:
        if connection is not self._connection:
            self._connection = connection
            self._session_present = False
            self._decoders = {True: PacketDecoder(TO_SERVER), False: PacketDecoder(TO_CLIENT)}
            for kind in (Suback, Unsuback):
                self._decoders[False].add_reader(kind)
        decoder = self._decoders[from_device]
        decoder.feed(data)
        try:
            while (packet := decoder.next_packet()) is not None:
                self._judge(packet, from_device)
        except RemoteProtocolError as error:
            self.violations.append(f"{self._name}: {'device' if from_device else 'broker'} sent nonsense: {error}")

    def begin_session(self) -> None:
        """Notes that the broker has a new session. The device may never know: if this CONNACK is lost, the next one has
        Session Present."""
        self._has_session = False
        self._sent_before |= self._sent
        for told in (self._sent, self._released, self._released_commands):
            told.clear()

    def _judge(self, packet: object, from_device: bool) -> None:
        if from_device and isinstance(packet, Publish):
            self._judge_publish(packet)
        elif from_device and isinstance(packet, Pubrel):
            self._released.add(self._identities.get(packet.packet_identifier, ""))
        elif from_device:
            return
        elif isinstance(packet, Connack) and packet.reason_code < UNSPECIFIED_ERROR:
            self._hear_session(packet.session_present)
        elif isinstance(packet, Suback):
            self.has_subscribed = True
        elif isinstance(packet, (Publish, Pubrel)):
            self._hear_command(packet)

    def _hear_session(self, is_present: bool) -> None:
        if self._has_session and not is_present:
            self.violations.append(f"{self._name}: the broker has lost the session by itself")
        if not is_present:
            self.begin_session()
        self._session_present = is_present
        self._has_session = True

    def _hear_command(self, packet: Publish | Pubrel) -> None:
        assert packet.packet_identifier is not None
        if isinstance(packet, Pubrel):
            self._released_commands.add(self._commands.get(packet.packet_identifier, ""))
            return
        command = bytes(packet.payload).decode()
        self._commands[packet.packet_identifier] = command
        self.heard.append(command)
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
        if before is not None and before != publish.packet_identifier:
            self.violations.append(f"{identity} came with packet identifiers {before} and {publish.packet_identifier}")
        if identity in self._sent and not publish.dup:
            self.violations.append(f"{identity} was repeated without DUP")
        if publish.dup and not self._session_present:
            self.violations.append(f"{identity} came with DUP in a new session")
        if identity in self._released and identity not in self.resent:
            self.violations.append(f"{identity} was published after its PUBREL")
        self._note(identity, publish.packet_identifier)

    def _note(self, identity: str, packet_identifier: int) -> None:
        self.repeated += identity in self._identifiers
        self._identifiers[identity] = packet_identifier
        self._identities[packet_identifier] = identity
        self._sent.add(identity)
        if identity in self._sent_before:
            self.resent.add(identity)


def command_of(payload: bytes) -> str | None:
    """Returns the command that a payload answers; None if it is a reading's message."""
    content = json.loads(payload)
    return content["command"] if isinstance(content, dict) else None
