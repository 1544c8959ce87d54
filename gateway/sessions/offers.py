"""QoS 0 messages on their way to the subscribers that are connected."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Protocol

from gateway.loop.pace import Shift, Shifts
from gateway.message import Message
from gateway.network import Network
from gateway.store import Cursor, MessageLog

HANDOUT_MOST = 10_000  # QoS 0 messages that wait to be handed out, each counted once for each subscriber


class Subscriber(Protocol):
    """A session, or a share group."""

    def offer(self, message: Message) -> None:
        """Sends a QoS 0 message if a client is connected."""


class _Handout:
    """Hands the QoS 0 messages of one owner to their subscribers, in order, until none is left.

    Args:
        shift: the owner's.
        offer: gives a message to the subscriber with a cursor.
        ended: called when all are handed out.
    """

    def __init__(self, shift: Shift, offer: Callable[[Cursor, Message], None], ended: Callable[[], object]) -> None:
        self._shift = shift
        self._offer = offer
        self._ended = ended
        self.size = 0  # messages, each counted once for each subscriber
        self._waiting: deque[tuple[Message, tuple[Cursor, ...]]] = deque()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def add(self, message: Message, takers: Iterator[Cursor]) -> None:
        """Adds a message behind the others, for the cursors that took it when it was published."""
        cursors = tuple(takers)  # without their subscriptions
        self._waiting.append((message, cursors))
        self.size += len(cursors)

    async def wait(self) -> None:
        """Waits until all are handed out."""
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._waiting:
                message, takers = self._waiting[0]
                for cursor in takers:
                    await self._shift.wait()
                    self._offer(cursor, message)
                self.size -= len(takers)
                self._waiting.popleft()
        finally:
            self._ended()


class Offers:
    """Gives QoS 0 messages to their subscribers as they come.

    Args:
        log: knows which cursors take a topic name.
        shifts: how long an owner's messages are handed out at a time.
        network: gets the real-time messages.

    ``subscribers`` are by their cursor.
    """

    def __init__(self, log: MessageLog, shifts: Shifts, network: Network) -> None:
        self.subscribers: dict[Cursor, Subscriber] = {}
        self._log = log
        self._shifts = shifts
        self._network = network
        self._handouts: dict[str, _Handout] = {}  # by owner

    async def close(self) -> None:
        """Hands out what is left; the clients have gone."""
        for handout in list(self._handouts.values()):
            await handout.wait()

    def offer(self, message: Message) -> None:
        """Sends a QoS 0 message to its connected subscribers, and a real-time one to all neighbours, as it comes.

        If that takes more than a slice, the rest is sent later, before the messages that its owner publishes meanwhile.
        """
        if message.is_realtime:
            self._network.links.flood(message)
        takers = iter(self._log.audience.takers(message.topic))
        if handout := self._handouts.get(message.owner):
            handout.add(message, takers)
            return
        shift = self._shifts.of(message.owner)
        for cursor in takers:
            if shift.is_over:
                self._hand_out_later(shift, message, chain((cursor,), takers))
                return
            self._offer_to(cursor, message)

    def _hand_out_later(self, shift: Shift, message: Message, takers: Iterator[Cursor]) -> None:
        owner = message.owner
        self._handouts[owner] = _Handout(shift, self._offer_to, lambda: self._handouts.pop(owner))
        self._handouts[owner].add(message, takers)

    async def wait_for(self, owner: str) -> None:
        """Waits until an owner's QoS 0 messages are handed out."""
        if handout := self._handouts.get(owner):
            await handout.wait()

    async def wait_for_many(self, owner: str) -> None:
        """Waits likewise, but only if more than HANDOUT_MOST of them wait."""
        if (handout := self._handouts.get(owner)) and handout.size > HANDOUT_MOST:
            await handout.wait()

    def _offer_to(self, cursor: Cursor, message: Message) -> None:
        if subscriber := self.subscribers.get(cursor):
            subscriber.offer(message)
        elif cursor.offered is not None:
            cursor.offered(message)
