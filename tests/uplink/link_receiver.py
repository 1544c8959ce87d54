"""A receiver of a route's messages, which tells from route numbers and statements what is lost."""

from collections.abc import Iterable, Sequence

from paho.mqtt.client import MQTTMessage

from wire.bulk.column_batch import CONTENT_TYPE, decode_batch
from wire.codec.packets import Publish
from wire.identity import IDENTITY_PROPERTY, decode_identity
from wire.properties import CONTENT_TYPE as CONTENT_TYPE_PROPERTY
from wire.properties import USER_PROPERTY
from wire.route_numbers import STATEMENT_TOPICS, VIA_PROPERTY, Statement, decode_statement, decode_via

Identity = tuple[str, int, int]


class Receiver:
    """``numbers`` has the identity under each number, by the epoch of the numbers, ``statements`` the statements that
    came, by their identities, and ``payloads`` what came of other messages, in order.
    """

    def __init__(self) -> None:
        self.numbers: dict[int, dict[int, Identity]] = {}
        self.statements: dict[int, Statement] = {}
        self.payloads: list[bytes] = []

    def take(self, publish: Publish) -> None:
        """A PUBLISH has come."""
        properties = publish.properties
        self._take(publish.topic, publish.payload, properties[USER_PROPERTY], properties.get(CONTENT_TYPE_PROPERTY))

    def take_from_paho(self, message: MQTTMessage) -> None:
        """A PUBLISH has come to a paho client."""
        properties = message.properties
        content_type = getattr(properties, "ContentType", None)
        self._take(message.topic, bytes(message.payload), properties.UserProperty, content_type)  # type: ignore[union-attr]

    def _take(self, topic: str, payload: bytes, user: Sequence[tuple[str, str]], content_type: str | None) -> None:
        texts = dict(user)
        via = decode_via(texts[VIA_PROPERTY])
        given = [number for first, last in via.runs for number in range(first, last + 1)]
        if content_type == CONTENT_TYPE:
            found = [
                (one.topic, one.payload, (one.origin, one.epoch, one.seq)) for one in decode_batch(payload).messages()
            ]
        else:
            found = [(topic, payload, decode_identity(texts[IDENTITY_PROPERTY]))]
        numbers = self.numbers.setdefault(via.epoch, {})
        for number, (its_topic, its_payload, identity) in zip(given, found, strict=True):
            assert numbers.setdefault(number, identity) == identity, f"two messages have the number {number}"
            if its_topic.startswith(STATEMENT_TOPICS):
                self.statements[identity[2]] = decode_statement(its_payload)
            else:
                self.payloads.append(its_payload)

    @property
    def epochs(self) -> list[set[int]]:
        """The numbers that came under each epoch."""
        return [set(numbers) for numbers in self.numbers.values()]

    @property
    def newest(self) -> Statement:
        """The newest statement."""
        return self.statements[max(self.statements)]

    def lost(self) -> list[tuple[Statement, str, int]]:
        """Returns statements with an origin and how many of its messages are missing; below 0 if there are more."""
        found = []
        for statement in self.statements.values():
            covered = range(statement.first, statement.last + 1)
            numbers = self.numbers.get(statement.epoch, {})
            came = [identity for number, identity in numbers.items() if number in covered]
            stated = {(share.origin, share.epoch): share.messages for share in statement.origins}
            for key in stated.keys() | {identity[:2] for identity in came}:
                missing = stated.get(key, 0) - sum(identity[:2] == key for identity in came)
                if missing:
                    found.append((statement, key[0], missing))
        return found

    def covered(self) -> set[Identity]:
        """Returns the identities of the messages that statements cover."""
        return {
            self.numbers[one.epoch][number]
            for one in self.statements.values()
            for number in range(one.first, one.last + 1)
            if number in self.numbers.get(one.epoch, {})
        }


def received_from(connections: Iterable[Iterable[Publish]]) -> Receiver:
    """Returns a receiver of what came over all connections."""
    receiver = Receiver()
    for publishes in connections:
        for publish in publishes:
            receiver.take(publish)
    return receiver
