"""The statements that a route sends, and the topics of statements that its broker does not take.

A broker whose rules do not name such a topic answers with a reason code, or ends the connection without a word, as AWS
IoT does. So a statement that it does not take is set aside, and for a day none goes to its topic::

    sent ─ refused, or connections in a row end over it ─► set aside ─ a day, or `holdfast uplink resend` ─► sent again
                                                              │                                              │
                        the next ones are set aside unsent ◄──┘            acknowledged: all of them go ◄────┘

What is set aside is durable, with the time and the reason. So the day goes on over restarts, and nothing that a
statement says is lost: it comes late. Until then a reader has a statement less, and takes nothing for complete.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Iterable

from gateway.routes import Message, RouteState, Signal
from gateway.store import MessageLog, drops
from uplink.numbers import is_statement_topic
from uplink.refusals import REFUSED_MOST, Refusals

REFUSED_MS = 24 * 3600 * 1000  # some brokers end the connection with each statement
LOOK_S = 60.0  # between two looks whether that is over: the clock may be set
KNOWN_MOST = 1000  # statements in flight, whose answers are told from those of other messages
UNSENT_MOST = REFUSED_MOST // 2  # beyond it unsent ones are dropped, so that they hold up no other message
UNSENT = "it was not sent, as the broker takes no statements of its topic"

logger = logging.getLogger(__name__)


class Statements:
    """What one route knows of statements: its own ones, and those of other gateways that it hands on.

    Args:
        log: the gateway's store.
        consumer: the name of the route's cursor.
        refusals: the messages that the route has set aside.
        state: the route's state, which names the topics that the broker refuses.
        not_made: the topic of the route's own statements if it makes none any more, "" otherwise. The route
            drops what is set aside of them.
    """

    def __init__(
        self, log: MessageLog, consumer: str, refusals: Refusals, state: RouteState, not_made: str = ""
    ) -> None:
        self._log = log
        self._consumer = consumer
        self._refusals = refusals
        self._state = state
        self._not_made = not_made
        self._sent: deque[tuple[int, str]] = deque(maxlen=KNOWN_MOST)  # positions and topics
        self._until_ms: dict[str, int] = {}  # Unix time until which none goes to a topic
        self._lifted: set[str] = set()  # topics whose statements are to be sent again
        self._news, self._is_lifted = Signal(), Signal()
        self._is_loaded = False
        refusals.when_asked = self._lift_all

    async def load(self) -> None:
        """Finds, once, the topics that the broker has refused before a restart. Raises sqlite3.Error."""
        if self._is_loaded:
            return
        refused = await self._refusals.messages()
        if not_made := [one.position for one in refused if one.topic == self._not_made]:
            await self._refusals.discard(not_made)
        for one in refused:
            if is_statement_topic(one.topic) and one.topic != self._not_made:
                self._lifted.add(one.topic)
                if one.reason != UNSENT and _is_time(one.refused_ms + REFUSED_MS):
                    self._until_ms[one.topic] = one.refused_ms + REFUSED_MS
        self._lifted -= self._until_ms.keys()  # the day of these is over
        self._is_loaded = True
        self._tell()

    async def run(self) -> None:
        """Sends again what was set aside, when its day is over or the broker takes its topic, for ever.

        Raises sqlite3.Error.
        """
        while True:
            self._lift([topic for topic, until_ms in self._until_ms.items() if not _is_time(until_ms)])
            while self._lifted:
                await self._send_again(self._lifted.pop())
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._news.wait()

    def note_sent(self, sent: Iterable[tuple[int, str]]) -> None:
        """Messages with these positions and topics are about to be sent; some may be statements."""
        self._sent += [(position, topic) for position, topic in sent if is_statement_topic(topic)]

    def topic_at(self, position: int) -> str:
        """Returns the topic of the statement that was sent from a position, "" if another message was."""
        return next((topic for at, topic in self._sent if at == position), "")

    @property
    def are_refused(self) -> bool:
        """Whether the broker takes no statements of some topic now."""
        return bool(self._until_ms)

    def is_refused(self, topic: str) -> bool:
        """Whether the broker takes no statements of a topic now."""
        return topic in self._until_ms

    async def wait_for(self, topic: str) -> None:
        """Waits until the broker may take statements of a topic."""
        while topic in self._until_ms:
            self._is_lifted.clear()
            await self._is_lifted.wait()

    def note_refused(self, topic: str, reason: str) -> None:
        """The broker does not take a statement, which is set aside for this reason."""
        self._until_ms[topic] = until_ms = int(time.time() * 1000) + REFUSED_MS
        self._tell()
        logger.warning(
            "route %s: the broker takes no statement on %s: %s; none goes there before %s. Let the route's account "
            "publish to holdfast/statement/#, or make none [statement_interval_s = 0]",
            self._state.name,
            topic,
            reason,
            _utc_of(until_ms),
        )

    def note_taken(self, topics: Iterable[str]) -> None:
        """The broker has acknowledged messages with these topics, each "" if it is no statement."""
        self._lift([topic for topic in dict.fromkeys(topics) if topic in self._until_ms])

    def keep(self, position: int, message: Message, via: str) -> None:
        """Sets a statement aside that is not sent, as the broker takes none of its topic now. Raises TooManyRefused."""
        if self._refusals.count < UNSENT_MOST:
            self._refusals.set_aside(position, UNSENT, via)
        else:
            self._log.drop(drops.REJECTED, self._consumer, message)

    def _lift_all(self) -> None:
        """An operator wants what is set aside to be sent again: the broker's rules may have changed."""
        self._lift(list(self._until_ms))

    def _lift(self, topics: list[str]) -> None:
        for topic in topics:
            del self._until_ms[topic]
        if topics:
            self._lifted.update(topics)
            self._tell()
            self._news.set()
            self._is_lifted.set()

    async def _send_again(self, topic: str) -> None:
        refused = await self._refusals.messages()
        self._refusals.send_again([one.position for one in refused if one.topic == topic])

    def _tell(self) -> None:
        until = [f"{topic} before {_utc_of(until_ms)}" for topic, until_ms in sorted(self._until_ms.items())]
        more = f" and {len(until) - 1} more topics" if len(until) > 1 else ""
        note = f"the broker takes no statements: none goes to {until[0]}{more}" if until else ""
        self._state.statement_note = note


def _is_time(until_ms: int) -> bool:
    """Whether a day that ends at this time is not over. If the clock was set back behind its beginning, it is."""
    return 0 < until_ms - time.time() * 1000 <= REFUSED_MS


def _utc_of(unix_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(unix_ms / 1000))
