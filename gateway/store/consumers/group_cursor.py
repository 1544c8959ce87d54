"""The cursor of a share group: its members take turns, and access rules may deny some topic names to some of them.

What the fetching member may not have waits for another one that may (`HeldBack`), and so does a delivery that a member
refuses. What no member may have leaves a range.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial
from typing import Any

from gateway.loop.pace import Slice
from gateway.loop.signals import Signal
from gateway.message import Message
from gateway.store.consumers.cursor import READ_LEAST, READ_MOST, Cursor
from gateway.store.consumers.delivery import Backlog, Delivery, ReasonToDrop, keep
from gateway.store.consumers.held_back import HeldBack
from gateway.store.consumers.taker import everything
from gateway.store.tables.drops import EVICTED, FILTERED
from gateway.store.tables.evicted import EvictedMessage

HELD_BACK_MOST = 1000  # topic names; with more of them the group reads no further


class GroupCursor(Cursor):
    """A cursor with ``fetch``, which waits for messages, and hands out only what the fetching member may have.

    ``may_be_taken`` says whether any member may have a topic name.
    """

    def __init__(self, *args: Any, **keys: Any) -> None:
        self.held_back = HeldBack()
        self.may_be_taken: Callable[[str], bool] = everything
        self._refused: dict[int, str] = {}  # topic names of refused deliveries, by packet identifier
        self._changes = self._considered = 0  # of the members' access rules
        self._news = Signal()
        self._turns = asyncio.Lock()
        super().__init__(*args, **keys)

    async def fetch(self, limit: int, may_have: Callable[[str], bool] = everything) -> list[Delivery]:
        """Waits, then returns up to ``limit`` deliveries, at least one, which this group member ``may_have``. Raises
        sqlite3.Error."""
        while True:
            async with self._turns:
                while not (deliveries := await self.fetch_now(limit, may_have)):
                    if self._refused or self.held_back:
                        break
                    await self._news.wait()
            if deliveries:
                return deliveries
            await self._news.wait()  # all waiting messages are for other members

    async def fetch_now(self, limit: int, may_have: Callable[[str], bool] = everything) -> list[Delivery]:
        """Does the same without waiting: the result may be empty."""
        async with self.fetching:
            self._news.clear()
            if may_have is everything:
                return await self._take_redelivered(limit) or await self._take_new(limit)
            self._offer_refused(may_have)
            while returned := await self._take_redelivered(limit):
                for delivery in returned:
                    if not may_have(delivery.message.topic):
                        self.refuse(delivery)
                if chosen := [delivery for delivery in returned if may_have(delivery.message.topic)]:
                    return chosen
            holds_back = partial(self._holds_back, may_have)
            return await self._take_held_back(limit, may_have) or await self._take_new(limit, holds_back)

    def refuse(self, delivery: Delivery) -> None:
        """The member that fetched a delivery may not have it: it waits for another member that may, if there is one."""
        if delivery.packet_identifier in self.flight.evicted:
            self._lose_for_good({delivery.packet_identifier})
        elif self.may_be_taken(delivery.message.topic):
            self._refused[delivery.packet_identifier] = delivery.message.topic
            self._tell()
        else:
            self._log.drop(FILTERED, self.consumer, delivery.message)
            self.acknowledge_all([delivery.packet_identifier])

    def reconsider(self) -> None:
        """The members' access rules have changed."""
        self._changes += 1
        self._tell()

    def _offer_refused(self, may_have: Callable[[str], bool]) -> None:
        """Hands refused deliveries out again that the fetching member may have, or that no member may have any more."""
        for packet_identifier, topic in list(self._refused.items()):
            if may_have(topic) or not self.may_be_taken(topic):
                del self._refused[packet_identifier]
                self.redeliver([packet_identifier])

    def _tell(self) -> None:
        self._news.set()
        super()._tell()

    def lose(
        self, messages: dict[int, Message], last: int, note_evicted: Callable[[str, Message], EvictedMessage]
    ) -> None:
        super().lose(messages, last, note_evicted)
        self._lose_for_good(set(self._refused))

    def _lose_for_good(self, packet_identifiers: set[int]) -> None:
        for packet_identifier in packet_identifiers & self.flight.evicted.keys():
            self._refused.pop(packet_identifier, None)
        super()._lose_for_good(packet_identifiers)

    async def discard_oldest(self, is_enough: Callable[[Backlog], bool], drops: ReasonToDrop = keep) -> None:
        async with self.fetching:
            while self.held_back and self.backlog is not None and not is_enough(self.backlog):
                await self._drop_held_back(EVICTED, self.held_back, 1)
            await self._discard_held_back()
        await super().discard_oldest(is_enough, drops)

    async def _discard_held_back(self) -> None:
        """Drops the oldest messages that were held back while their shares are beyond a limit."""
        drops = self.tally.drops(None)
        while drops and (over := {topic for topic in self.held_back if drops(Message(topic, b""))}):
            await self._drop_held_back(EVICTED, over, 1)

    async def _drop_held_back(self, reason: str, topics: Container[str], limit: int) -> bool:
        """Drops up to ``limit`` messages of some topics that were held back; returns whether there were any."""
        dropped = await self._read_held_back(topics, limit)
        for position, message in dropped:
            self._drop(reason, position, message)
        return bool(dropped)

    async def evict(self, messages: list[tuple[int, Message]]) -> None:
        await super().evict(messages)
        self._move_on(messages[-1][0], self.held_back)

    async def _take_held_back(self, limit: int, may_have: Callable[[str], bool]) -> list[Delivery]:
        """Hands out held-back messages that the fetching member may have, and drops what no member may have."""
        changes = self._changes
        if changes != self._considered:
            untaken = {topic for topic in self.held_back if not self.may_be_taken(topic)}
            while await self._drop_held_back(FILTERED, untaken, READ_MOST):
                pass
            self._considered = changes
        await self._discard_held_back()
        wanted = {topic for topic in self.held_back if may_have(topic)}
        return list(self._deliveries(await self._read_held_back(wanted, limit)))

    def _deliveries(self, messages: Iterable[tuple[int, Message]]) -> Iterator[Delivery]:
        """Hands out messages that were held back, as far as they are still for the group."""
        for position, message in messages:
            if (grant := self.grant(position, message)) is None:
                continue
            packet_identifier = self._taken % self._identifiers + 1
            self.flight.entries[packet_identifier] = position, grant, message.content_size, self._taken
            self.flight.late[packet_identifier] = position
            self.tally.note_handed_out(position, message)
            self._taken += 1
            yield Delivery(position, packet_identifier, message, False, *grant, self._taken)

    async def _read_held_back(self, topics: Container[str], limit: int) -> list[tuple[int, Message]]:
        """Reads up to ``limit`` messages of some topics that were held back, and removes them from the set."""
        waiting: list[tuple[int, Message]] = []
        wanted, slice_ = max(limit, READ_LEAST), Slice()
        while not waiting and (first := self.held_back.next_of(topics)) is not None:
            found = await self._log.read(first - 1, wanted)
            at = found[-1][0] if found else self._log.head
            for position, message in found:
                if message.topic in topics and self.held_back.holds(position, message.topic):
                    if position in self.passed:
                        del self.passed[position]
                        self._taken += 1
                    elif position > self._log.gone:
                        waiting.append((position, message))
                    else:
                        self._miss(position, message)
                if len(waiting) == limit:
                    at = position
                    break
            self._move_on(at, topics)
            wanted = min(2 * wanted, READ_MOST)
            if not waiting and slice_.is_over:
                await slice_.give_way()
        return waiting

    def _move_on(self, position: int, topics: Container[str]) -> None:
        """Removes messages of some topics from the set, up to a position."""
        if self.held_back.move_on(position, topics):
            self._news.set()

    def _holds_back(self, may_have: Callable[[str], bool], position: int, message: Message) -> bool:
        """Holds a new message back, or drops it, unless the member may have it and no earlier one waits."""
        topic = message.topic
        if topic not in self.held_back and (may_have(topic) or position in self.passed):
            return False
        if topic in self.held_back or self.may_be_taken(topic):
            self.held_back.extend(position, topic)
        else:
            self._drop(FILTERED, position, message)
        self._news.set()
        return True

    def _room(self, limit: int, used: int) -> int:
        return super()._room(limit, used) if len(self.held_back) < HELD_BACK_MOST else 0
