"""Incoming QoS 2 messages whose PUBCOMP may be lost: some clients publish them a second time.

paho 2.2 does so if it tries twice to connect again, as while a gateway restarts: a message whose PUBREC it has had goes
again as a PUBLISH, with DUP 0 and under its packet identifier, instead of its PUBREL. If the PUBREL had arrived and the
PUBCOMP was lost, the identifier is free, and by the standard the PUBLISH is a new message [MQTT-4.3.3-12]::

    client                      gateway
      │ ─── PUBLISH 7 ─────────► │ stored
      │ ◄── PUBREC 7 ─────────── │
      │ ─── PUBREL 7 ──────────► │ released, and noted here
      │      ✗ ◄── PUBCOMP 7 ─── │ the connection ends
      │ ─── PUBLISH 7, DUP 0 ──► │ the same content: answered with PUBREC, not stored again

It counts as the same message only where all of this holds:

- it comes over the next connection of the session, AWAY_S later at most;
- it has the same packet identifier, topic and payload;
- it has no identity, which would say whether it is new;
- it has no RETAIN: a retained message says what is now, and a will may have come between;
- nothing new came before it over that connection: paho sends what is unfinished first, in its order;
- the PUBREL came KEPT_S or less before the end of the former connection, which ended without DISCONNECT;
- nothing proves that the PUBCOMP has arrived;
- its client does not give an identifier again soon, as one that begins at 1 for each message does.

What a client sends in answer to a packet proves that all has arrived that the gateway had sent before this packet, as
TCP keeps the order. So these prove that a PUBCOMP has arrived:

- a PUBREL, if its PUBREC went out behind the PUBCOMP;
- a PUBACK or a PUBREC, if the PUBLISH that it answers went out behind the PUBCOMP;
- a QoS 2 PUBLISH with the same packet identifier over the same connection, as the PUBCOMP frees it [MQTT-2.2.1-4].

Nothing else does: other PUBLISHes, SUBSCRIBE, UNSUBSCRIBE and PINGREQ are no answers, and a PUBCOMP answers a PUBREL
that may have gone out before. The acknowledgements of TCP say only that the client's system has the bytes.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from gateway.message import Message
from gateway.store import PublishBatch, Work, qos2
from wire.bulk.connection import Repeat
from wire.bulk.content_digest import content_digest, digests_of
from wire.bulk.publishes import cut_contents
from wire.codec.packets import Publish
from wire.identity import IDENTITY_PROPERTY, find_user_property

KEPT_S = 10.0  # beyond it a PUBCOMP has arrived, or the line has reported that it has not
AWAY_S = 300.0  # paho waits 2 minutes at most before it connects again
KEPT_MOST = 1000  # messages of a session; a client has fewer in flight


def digests_in(part: Message | PublishBatch) -> list[bytes]:
    """Returns the digest of each message."""
    if isinstance(part, Message):
        return [content_digest(part.topic, part.payload)]
    # Its messages are not made yet, as they get their identities with the store.
    return digests_of(cut_contents(part.packets, part.level))


class Released:
    """The messages of one durable session that were released a moment ago.

    Args:
        defer: writes work with the next commit.
        session: the session's name.
        incoming: the session's messages that are not released.
        stored: what was in the file at the start.

    ``is_expecting`` says whether the next PUBLISH may be one of these: nothing new has come over the connection.
    ``probe`` is a number of PUBCOMPs and the packet identifiers of messages to the client at that time; None while no
    answer of the client can prove anything.
    """

    __slots__ = (
        "_answered",
        "_defer",
        "_digests",
        "_incoming",
        "_marks",
        "_numbers",
        "_paused_s",
        "_reuses",
        "_session",
        "_timer",
        "_times",
        "_written",
        "is_expecting",
        "probe",
    )

    def __init__(
        self,
        defer: Callable[[Work], None],
        session: str,
        incoming: qos2.Digests,
        stored: qos2.Digests | None = None,
    ) -> None:
        self._defer = defer
        self._session = session
        self._incoming = incoming
        self._digests: qos2.Digests = stored or {}
        self._written = dict.fromkeys(incoming)  # incoming messages whose digests are in the file, if they are known
        self._times: dict[int, float] = {}
        self._answered = 0  # PUBCOMPs over this connection
        self._numbers: dict[int, int] = {}  # of the PUBCOMPs of these messages among them
        self._marks: dict[int, int] = {}  # how many there were when a message had its PUBREC
        self.probe: tuple[int, frozenset[int]] | None = None
        self.is_expecting = False
        self._paused_s = 0.0
        self._reuses = False
        self._timer: asyncio.TimerHandle | None = None

    def resume(self) -> None:
        """The client is back."""
        now_s = asyncio.get_running_loop().time()
        if self._paused_s and now_s - self._paused_s > AWAY_S:
            self.forget()
        self.is_expecting = bool(self._digests)
        self._times = dict.fromkeys(self._digests, now_s)
        self._answered, self._numbers, self._marks, self.probe = 0, {}, {}, None
        self._set_timer()

    def pause(self) -> None:
        """The connection has ended."""
        self.is_expecting = False
        self._paused_s = asyncio.get_running_loop().time()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def forget(self) -> None:
        """The client has said that it goes, so it has had the PUBCOMPs, or its identifiers begin anew."""
        self._forget(list(self._digests))

    def note_new(self) -> None:
        """A new message has come over the connection."""
        self.is_expecting = False

    def look_at(self, packet: Publish) -> Repeat:
        """Says what a QoS 2 PUBLISH is that came over the connection."""
        identifier = packet.packet_identifier
        assert identifier is not None
        is_held = identifier in self._incoming
        if not (is_held or self.is_expecting):
            return Repeat.UNKNOWN
        digest = content_digest(packet.topic, packet.payload)
        if is_held:
            if not (known := self._incoming[identifier]):
                known = digest
                self._written.pop(identifier, None)
            self._incoming[identifier] = digest
            return Repeat.KNOWN if known == digest else Repeat.OTHER
        is_same = self._digests.get(identifier) == digest and not packet.retain
        if is_same and find_user_property(packet.properties, IDENTITY_PROPERTY) is None:
            self._drop([identifier])
            self._written[identifier] = None  # it is in the file until it is released again
            self._incoming[identifier] = digest
            return Repeat.KNOWN
        self.is_expecting = self.is_expecting and packet.dup
        return Repeat.UNKNOWN

    def note_incoming(self, packet_identifiers: list[int], digests: Sequence[bytes]) -> list[Work]:
        """Returns the work that notes the contents of messages that are being stored."""
        if self._reuses:
            return []
        self._written.update(dict.fromkeys(packet_identifiers))
        return [qos2.note_released(self._session, dict(zip(packet_identifiers, digests, strict=True)))]

    def note_received(self, packet_identifiers: list[int]) -> None:
        """PUBRECs of new messages go out."""
        if not self._digests.keys().isdisjoint(packet_identifiers):
            self._reuses = True
            self.forget()
        self._marks.update(dict.fromkeys(packet_identifiers, self._answered))

    def note_answered(self, packet_identifiers: list[int], in_use: Callable[[], Iterable[int]]) -> None:
        """PUBCOMPs go out; ``in_use`` returns the packet identifiers of messages to the client."""
        for one in packet_identifiers:
            self._answered += 1
            if one in self._digests:
                self._numbers[one] = self._answered
        if self._numbers and self.probe is None:
            self.probe = self._answered, frozenset(in_use())

    def note_answers(self, packet_identifiers: Iterable[int], in_use: Callable[[], Iterable[int]]) -> None:
        """The client has answered messages, with PUBACKs or PUBRECs."""
        if self.probe is None or self.probe[1].issuperset(packet_identifiers):
            return
        arrived = self._arrived(self.probe[0])
        if arrived:
            self._forget(arrived)
        self.probe = (self._answered, frozenset(in_use())) if self._numbers else None

    def _arrived(self, answered: int) -> list[int]:
        """Returns those of these messages whose PUBCOMPs are among the first ones over this connection."""
        return [one for one, number in self._numbers.items() if number <= answered]

    def release(self, packet_identifiers: list[int]) -> list[Work]:
        """Returns the work that notes released messages, which are still among the incoming ones."""
        if self._reuses:
            return self._forget_written(packet_identifiers)
        digests = {one: self._incoming.get(one, b"") for one in packet_identifiers}
        digests = {one: digest for one, digest in digests.items() if digest}
        mark = max((self._marks.pop(one, 0) for one in packet_identifiers), default=0)
        arrived = self._arrived(mark)
        self._digests.update(digests)
        self._times.update(dict.fromkeys(digests, asyncio.get_running_loop().time()))
        self._set_timer()
        unwritten = {one: digest for one, digest in digests.items() if one not in self._written}
        for one in packet_identifiers:
            self._written.pop(one, None)
        works: list[Work] = [qos2.note_released(self._session, unwritten)] if unwritten else []
        arrived += [one for one in islice(self._digests, max(0, len(self._digests) - KEPT_MOST)) if one not in arrived]
        if arrived:
            self._drop(arrived)
            works.append(qos2.forget_released(self._session, arrived))
        return works

    def _forget_written(self, packet_identifiers: list[int]) -> list[Work]:
        """Returns the work that forgets the contents of messages of a client that gives identifiers again."""
        written = [one for one in packet_identifiers if self._written.pop(one, one) is None]
        return [qos2.forget_released(self._session, written)] if written else []

    def _set_timer(self) -> None:
        if self._timer is None and self._digests:
            self._timer = asyncio.get_running_loop().call_later(KEPT_S, self._expire)

    def _expire(self) -> None:
        self._timer = None
        until_s = asyncio.get_running_loop().time() - KEPT_S
        self._forget([one for one in self._digests if self._times.get(one, 0.0) <= until_s])
        self._set_timer()

    def _forget(self, packet_identifiers: list[int]) -> None:
        if packet_identifiers:
            self._drop(packet_identifiers)
            self._defer(qos2.forget_released(self._session, packet_identifiers))

    def _drop(self, packet_identifiers: list[int]) -> None:
        for one in packet_identifiers:
            del self._digests[one]
            self._times.pop(one, None)
            self._numbers.pop(one, None)
