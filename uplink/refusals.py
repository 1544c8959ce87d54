"""A route's messages that the next broker will never take: they are set aside with a reason, and the rest goes on."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Container

import msgspec

from gateway.routes import Message, RouteState, Signal
from gateway.store import MessageLog, Refused, Work, drops
from wire.errors import WireError

REFUSED_MOST = 10_000  # beyond it the broker refuses everything, perhaps, and the route stands still

Send = Callable[[Refused, Message], Awaitable[None]]

logger = logging.getLogger(__name__)


class RefusedMessage(msgspec.Struct, frozen=True):
    """A message that a route has set aside; ``identity`` is (origin, epoch, seq)."""

    route: str
    position: int
    reason: str
    refused_ms: int
    topic: str
    bytes: int
    identity: tuple[str, int, int]


class TooManyRefused(WireError):
    """No more messages are set aside: the route stands still until some are sent again or dropped."""


class Refusals:
    """The refused messages of one route. They stay in the store, with their identities, and can be sent again.

    Args:
        log: the gateway's store.
        consumer: the name of the route's cursor.
        state: the route's state, which counts them.

    ``due`` has the messages that are to be sent again, by position; ``is_due`` is set while there are any.
    ``when_asked`` is called when an operator asks for that.
    """

    def __init__(self, log: MessageLog, consumer: str, state: RouteState) -> None:
        self.due: dict[int, Refused] = {}
        self.is_due = Signal()
        self.when_asked: Callable[[], None] = _do_nothing
        self._log = log
        self._consumer = consumer
        self._state = state
        self._count()

    def set_aside(self, position: int, reason: str, via: str) -> None:
        """Sets a message aside; the caller then moves the cursor or ends the flow.

        Args:
            position: the message's place in the log.
            reason: why the broker does not take it.
            via: its route number, empty for none.

        Raises:
            TooManyRefused: there are too many already.
        """
        count = self.count
        if self.due.pop(position, None) is None:
            if count >= REFUSED_MOST:
                raise TooManyRefused(f"{reason}; {count} refused messages are set aside, and no more are")
            if not count:
                logger.warning("route %s: a refused message is set aside: %s", self._state.name, reason)
        self._log.refused.add(self._consumer, position, reason, via)
        self._count()

    @property
    def count(self) -> int:
        """How many messages are set aside."""
        return self._log.refused.count(self._consumer)

    def all(self) -> list[Refused]:
        """Returns the messages that are set aside, the oldest first."""
        return self._log.refused.of(self._consumer)

    async def messages(self) -> list[RefusedMessage]:
        """Returns the messages that are set aside, the oldest first. Raises sqlite3.Error."""
        found = []
        for one in self.all():
            message = await self._log.read_one(one.position)
            if message is not None:
                row, size = one.row, len(message.payload)
                identity = (message.origin, message.epoch, message.seq)
                about = (row.position, row.reason, row.refused_ms, message.topic, size, identity)
                found.append(RefusedMessage(self._state.name, *about))
            await asyncio.sleep(0)
        return found

    async def discard(self, positions: Collection[int] | None = None) -> int:
        """Drops the messages that are set aside, all or those at some positions; ranges ``rejected`` say so.

        Returns how many. Raises sqlite3.Error.
        """
        refused = [one for one in self.all() if positions is None or one.position in positions]
        for one in refused:
            message = await self._log.read_one(one.position)
            if message is not None:
                self._log.drop(drops.REJECTED, self._consumer, message)
            self._log.defer(self.release(one))
        await self._log.submit([])
        return len(refused)

    def send_again(self, positions: Collection[int] | None = None) -> int:
        """Makes those at some positions due, or all, as an operator wants; returns how many are due then."""
        if positions is None:
            self.when_asked()
        self.due |= {one.position: one for one in self.all() if positions is None or one.position in positions}
        if self.due:
            self.is_due.set()
        return len(self.due)

    async def send_due(
        self, wait_for_room: Callable[[], Awaitable[None]], send: Send, flight: Container[int] = ()
    ) -> None:
        """Sends what is due, but for the messages in flight. Raises sqlite3.Error, and what ``send`` raises.

        Args:
            wait_for_room: returns when a message may be sent.
            send: sends a message; it releases it, or sets it aside again, by the answer.
            flight: the positions of messages that were sent and have no answer.
        """
        self.is_due.clear()
        for one in list(self.due.values()):
            if one.position in flight or self.due.get(one.position) is not one:
                continue
            message = await self._log.read_one(one.position)
            if message is None:
                self._log.defer(self.release(one))
                continue
            await wait_for_room()
            if self.due.get(one.position) is one:  # it may have been discarded meanwhile
                await send(one, message)

    def release(self, one: Refused) -> Work:
        """A message is no longer set aside; returns the work that has to be written then."""
        self.due.pop(one.position, None)
        work = self._log.refused.release(one)
        self._count()
        return work

    def _count(self) -> None:
        self._state.refused_messages = self.count


def _do_nothing() -> None:
    """Nothing depends on what an operator asks for."""
