"""The publisher of messages as the intake sees it: a client with its connection, or a route."""

from typing import Protocol

from gateway.sessions.released import Released


class Owned(Protocol):
    """What counts for an owner (``gateway.holdings``)."""

    @property
    def owner(self) -> str: ...


class Publisher(Protocol):
    """What the intake needs of a client's session, or of a route that receives messages.

    ``incoming`` has the packet identifiers of QoS 2 messages that are not released, with digests, ``released`` has the
    identifiers released a moment ago, if these are noted. ``durable`` says whether they are noted in the store.
    ``holding`` has the owner that the messages count for.
    """

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
    """What the intake needs of a connection: it answers PUBLISHes. A `BulkConnection` is one."""

    @property
    def connected(self) -> bool: ...

    @property
    def protocol_level(self) -> int: ...

    def puback(self, packet_identifier: int, reason_code: int, reason: str, /) -> object: ...

    def pubrec(self, packet_identifier: int, reason_code: int, reason: str, /) -> object: ...

    def answer_all(self, packet_type: int, identifiers: list[int], reason_code: int, /) -> object: ...

    def has_unanswered(self) -> bool: ...

    def identifiers_in_use(self) -> list[int]: ...
