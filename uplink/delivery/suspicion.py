"""Finds the message over which the next broker ends the connection, where it could refuse that message instead.

::

    many in flight ─ connections in a row end unanswered ─► one in flight ─ it ends over this one ─► set aside
          ▲                                                       │
          └────────────── the broker answers a message ◄──────────┘

mosquitto does so over a control character in a topic name, other brokers over a topic name that they do not allow. The
message would be the first one to go over each connection, and all others would wait for ever.

A broker or a line may also end some connections for a reason of its own. So a message that was set aside without a
reason code that blames it goes once more, behind others that the broker has answered. If the connection ends over it
again, answers to others do not speak for it.

A statement is the first one to suspect, as a broker's rules may not name its topic. It is set aside after fewer
connections, and goes again when its day is over (``uplink.delivery.statements``).
"""

from wire.reasons import (
    IMPLEMENTATION_SPECIFIC_ERROR,
    MALFORMED_PACKET,
    PACKET_TOO_LARGE,
    PAYLOAD_FORMAT_INVALID,
    PROTOCOL_ERROR,
    QOS_NOT_SUPPORTED,
    RETAIN_NOT_SUPPORTED,
    TOPIC_NAME_INVALID,
)

BLAMES_PACKET = (
    MALFORMED_PACKET,
    PROTOCOL_ERROR,
    IMPLEMENTATION_SPECIFIC_ERROR,
    TOPIC_NAME_INVALID,
    PACKET_TOO_LARGE,
    PAYLOAD_FORMAT_INVALID,
    RETAIN_NOT_SUPPORTED,
    QOS_NOT_SUPPORTED,
)
"""The reason codes of a DISCONNECT that say that a packet is wrong."""
UNANSWERED_MOST = 2  # connections in a row that the broker ends without an answer; over the next one messages go singly
ALONE_MOST = 5  # connections in a row that it ends over one message, without a reason code that blames it
ALONE_MOST_PROVED = 2  # the same once the broker has answered another message behind one that was set aside
STATEMENT_MOST = 3  # the same for a statement, without a proof; it goes singly after the first connection
SINGLY_AFTER = 100  # answers with one message in flight, after one was set aside: others like it may follow
ONCE_MORE_AFTER = 50  # of these answers; then one that no reason code blames goes once more


class Suspicion:
    """What the ends of one route's connections say of the messages in flight. It outlives the connections.

    ``is_alone`` says whether one message is in flight at a time.
    """

    def __init__(self) -> None:
        self.is_alone = False
        self._unanswered = 0
        self._position = self._ends = 0  # of the message that went singly last, and over how many connections in a row
        self._singly = 0  # answers until many messages may be in flight
        self._has_set_aside = self._is_proved = False
        self._unblamed: set[int] = set()  # positions of messages that are to go once more
        self._gone_again: set[int] = set()  # positions of messages that have gone once more

    def note_answer(self) -> set[int]:
        """The broker has answered messages. Returns the positions of the messages that are to go once more now."""
        self._unanswered = 0
        if self._position not in self._gone_again:
            self._ends = 0
        self._is_proved = self._has_set_aside
        self._singly = max(0, self._singly - 1)
        self.is_alone = self._singly > 0
        if self._singly > SINGLY_AFTER - ONCE_MORE_AFTER or not self._unblamed:
            return set()
        due, self._unblamed = self._unblamed, set()
        self._gone_again |= due
        self._ends = 0
        return due

    def note_end(self, code: int, positions: list[int], *, has_answer: bool, is_statement: bool = False) -> bool:
        """The broker has ended a connection.

        Args:
            code: the reason code of its DISCONNECT, UNSPECIFIED_ERROR if it just closed the connection.
            positions: the positions of the messages in flight.
            has_answer: whether it has answered a message over this connection.
            is_statement: whether the oldest of them is a statement.

        Returns:
            Whether the one in flight is to be set aside.
        """
        if not positions:
            return False
        blames = code in BLAMES_PACKET
        has_gone_again = not self._gone_again.isdisjoint(positions)
        is_single = self.is_alone or has_gone_again or is_statement
        if len(positions) > 1 or not is_single:
            self._unanswered = 0 if has_answer else self._unanswered + 1
            self.is_alone = blames or is_statement or self._unanswered >= UNANSWERED_MOST
            if has_gone_again:  # it is the first one to suspect
                self._singly, self.is_alone = SINGLY_AFTER, True
            return False
        self._ends = self._ends + 1 if positions[0] == self._position else 1
        self._position = positions[0]
        if is_statement:
            self.is_alone = not blames and self._ends < STATEMENT_MOST
            return not self.is_alone
        if not blames and self._ends < (ALONE_MOST_PROVED if self._is_proved else ALONE_MOST):
            return False
        self._singly, self._has_set_aside = SINGLY_AFTER, True
        if not blames and self._position not in self._gone_again:
            self._unblamed.add(self._position)
        return True
