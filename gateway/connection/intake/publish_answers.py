"""The answers to one publisher's messages: PUBACK or PUBREC when they are durable, PUBCOMP when they are released."""

from collections.abc import Sequence
from itertools import repeat
from typing import Protocol

from gateway.message import Message
from gateway.sessions.released import Released, digests_in
from gateway.store import AckBatch, AckOrder, MessageLog, PublishBatch, Work, qos2
from wire.bulk.content_digest import content_digest
from wire.codec.packets import Publish
from wire.packet_types import PUBACK, PUBCOMP, PUBREC
from wire.reasons import SUCCESS, UNSPECIFIED_ERROR


class Owned(Protocol):
    """What counts for an owner (``gateway.holdings``)."""

    @property
    def owner(self) -> str: ...


class Publisher(Protocol):
    """What is needed of a client's session, or of a route that receives messages.

    ``incoming`` has the packet identifiers of QoS 2 messages that are not released, with digests, ``released`` has the
    identifiers released a moment ago, if these are noted. ``durable`` says whether they are noted in the store.
    ``holding`` has the owner that the messages count for. ``is_broker`` says whether a route's broker sends the
    messages: it drops a message that it is told does not fit, so its messages wait and none is refused for a limit.
    """

    @property
    def is_broker(self) -> bool: ...

    @property
    def client_id(self) -> str: ...

    @property
    def durable(self) -> bool: ...

    @property
    def incoming(self) -> dict[int, bytes]: ...

    @property
    def released(self) -> Released | None: ...

    @property
    def holding(self) -> Owned: ...


class Answering(Protocol):
    """What is needed of a connection: it answers PUBLISHes. A `BulkConnection` is one."""

    @property
    def connected(self) -> bool: ...

    @property
    def protocol_level(self) -> int: ...

    def puback(self, packet_identifier: int, reason_code: int, reason: str, /) -> object: ...

    def pubrec(self, packet_identifier: int, reason_code: int, reason: str, /) -> object: ...

    def answer_all(self, packet_type: int, identifiers: list[int], reason_code: int, /) -> object: ...

    def has_unanswered(self) -> bool: ...

    def identifiers_in_use(self) -> list[int]: ...


class PublishAnswers(AckBatch):
    """Answers one publisher's messages when they are durable, in the order in which they came [section 4.6].

    Args:
        protocol: the connection, already accepted; it sends the answers.
        publisher: the client's session, or the route.
        log: stores the messages.
        order: the answers of the connection.
    """

    __slots__ = ("protocol", "publisher")

    def __init__(self, protocol: Answering, publisher: Publisher, log: MessageLog, order: AckOrder) -> None:
        super().__init__(log.hand_in, order)
        self.protocol = protocol
        self.publisher = publisher

    def accept(
        self,
        qos: int,
        identifiers: list[int],
        *work: Work,
        code: int = SUCCESS,
        remark: str = "",
        digests: Sequence[bytes] | None = None,
    ) -> None:
        """Accepts messages of QoS 1 or 2 when ``work`` is durable.

        ``remark`` is the reason string of the answer. ``digests`` are those of the messages' contents, at QoS 2.
        """
        if qos == 1:
            self.add(lambda: self._answer(PUBACK, identifiers, code, remark), *work)
        else:
            self.add(lambda: self._received(identifiers, code, remark, digests), *work)

    def accept_new(
        self, part: Message | PublishBatch, qos: int, identifiers: list[int], work: list[Work], code: int, remark: str
    ) -> None:
        """Accepts messages that ``work`` stores; at QoS 2 the same transaction notes their packet identifiers."""
        digests = None
        if qos == 2:
            if self.publisher.durable:
                work.append(qos2.note_incoming(self.publisher.client_id, identifiers))
            if (released := self.publisher.released) is not None:
                digests = digests_in(part)
                work += released.note_incoming(identifiers, digests)
        self.accept(qos, identifiers, *work, code=code, remark=remark, digests=digests)

    def accept_unstored(self, packet: Publish, *work: Work) -> None:
        """Accepts a message that is not stored: its conditions hold it back, or no rule allows it, which ``work``
        notes, or this gateway has stored it and handed it on before. Otherwise gateways that lead to each other would
        pass it round for ever.
        """
        if packet.packet_identifier is not None:
            digests = [content_digest(packet.topic, packet.payload)] if packet.qos == 2 else None
            self.accept(packet.qos, [packet.packet_identifier], *work, digests=digests)

    def refuse(self, packet: Publish, reason_code: int, reason: str = "") -> None:
        """Refuses a message of QoS 1 or 2 from a peer of MQTT 5."""
        identifier = packet.packet_identifier
        assert identifier is not None
        answer = PUBACK if packet.qos == 1 else PUBREC
        self.add(lambda: self._answer(answer, [identifier], reason_code, reason))

    def release(self, identifiers: list[int]) -> None:
        """Releases messages of QoS 2, after their PUBRELs."""
        notes: list[Work] = []
        if self.publisher.durable:
            notes.append(qos2.release_incoming(self.publisher.client_id, identifiers))
        if self.publisher.released is not None:
            notes += self.publisher.released.release(identifiers)
        self.add(lambda: self._released(identifiers), *notes)

    def _received(self, identifiers: list[int], code: int, remark: str, digests: Sequence[bytes] | None) -> None:
        self.publisher.incoming.update(zip(identifiers, digests or repeat(b""), strict=False))
        if self.publisher.released is not None:
            self.publisher.released.note_received(identifiers)
        self._answer(PUBREC, identifiers, code, remark)

    def _released(self, identifiers: list[int]) -> None:
        for identifier in identifiers:
            self.publisher.incoming.pop(identifier, None)
        if self.publisher.released is not None:
            self.publisher.released.note_answered(identifiers, self.protocol.identifiers_in_use)
        self._answer(PUBCOMP, identifiers)

    def _answer(self, packet_type: int, identifiers: list[int], code: int = SUCCESS, reason: str = "") -> None:
        """Sends PUBACKs, PUBRECs or PUBCOMPs; one with a reason string, or a reason code from 0x80 on, is alone."""
        if not self.protocol.connected:
            return
        if reason or code >= UNSPECIFIED_ERROR:
            (identifier,) = identifiers
            answer = self.protocol.puback if packet_type == PUBACK else self.protocol.pubrec
            answer(identifier, code, reason)
        else:
            self.protocol.answer_all(packet_type, identifiers, code)
