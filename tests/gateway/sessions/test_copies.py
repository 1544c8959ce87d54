"""Retained messages that came over a link, and which of them go when their interest goes."""

import asyncio
import random
from collections import deque
from pathlib import Path
from typing import Any

from gateway.message import Message
from gateway.sessions.copies import Copies
from gateway.store import MessageLog, retained
from tests.gateway.store.support import opened
from wire.topics import matches

LINK = "route/to-b"
TOPICS = ("a/1", "a/2", "b/1", "b/2")
FILTERS = ("#", "a/#", "b/#", "+/1", *TOPICS)


class Neighbour:
    """The other end of a link, with retained messages, and this end, which has copies of them.

    It sends the retained messages of each filter that it is newly told, then what is published below the filters. What
    waits to be sent for a withdrawn filter alone is not sent.
    """

    def __init__(self, log: MessageLog) -> None:
        self.there: set[str] = set()
        self.told: list[str] = []
        self.steady: set[str] = set()  # topics that were wanted since the last message to them came
        self.copies = Copies(log, LINK)
        self.copies.told = lambda topic: (one for one in self.told if matches(one, topic))
        self._log = log
        self._line: deque[tuple[str, bytes]] = deque()
        self._storing: list[asyncio.Task[None]] = []
        self._numbers = 0

    def tell(self, added: list[str], removed: list[str]) -> None:
        self.told = [*(one for one in self.told if one not in removed), *added]
        self.copies.tell(added, removed)
        self.steady = {topic for topic in self.steady if self.copies.wants(topic)}
        self._line = deque(one for one in self._line if self.copies.wants(one[0]))
        for topic in sorted(self.there):
            if any(matches(one, topic) for one in added):
                self._line.append((topic, b"retained"))

    def publish(self, topic: str, payload: bytes = b"new") -> None:
        """Another message is published there, and retained; one without payload removes the message that was."""
        (self.there.add if payload else self.there.discard)(topic)
        if self.copies.wants(topic):
            self._line.append((topic, payload))

    def come(self, most: int = 1000) -> None:
        """Messages come over the link."""
        while self._line and most:
            topic, payload = self._line.popleft()
            if self.copies.wants(topic):
                self.copies.take(topic)
                self.steady.add(topic)
                self._numbers += 1
                message = Message(topic, payload, 1, True, {}, "dev", 1, self._numbers, 1, "b", LINK)
                stored = self._log.submit([retained.KeepCopy(message)])
                self._storing.append(asyncio.create_task(self._note_kept(topic, stored)))
            most -= 1

    async def _note_kept(self, topic: str, stored: asyncio.Future[list[Any]]) -> None:
        await stored
        self.copies.note_kept(topic)

    async def settle(self) -> None:
        """All has come, is stored, and what is wanted no more is gone."""
        self.come()
        await asyncio.gather(*self._storing)
        await self.copies.settle()

    async def kept(self) -> set[str]:
        found: set[str] = set()
        search = retained.Search(retained.EVERY_TOPIC, self._log.head)
        while True:
            [piece] = await self._log.reader.find_retained([search], 0)
            found.update(topic for topic, _ in piece.topics)
            if piece.end is None:
                return found
            search = search._replace(after=piece.end)


async def test_copies_go_whose_filter_is_withdrawn_while_others_are_looked_for(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        b = Neighbour(log)
        for topic in ("a/1", "b/1", "b/2"):
            b.publish(topic)
        b.tell(["a/1", "b/1", "b/2"], [])
        await b.settle()
        for topic_filter in ("a/1", "b/1", "b/2"):  # one is looked for, the others wait together
            b.tell([], [topic_filter])
        await b.settle()
        assert await b.kept() == set()
        b.copies.close()


async def test_a_copy_goes_that_came_while_others_waited_to_be_looked_for(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        b = Neighbour(log)
        for topic in ("a/1", "b/1"):
            b.publish(topic)
        b.tell(["a/1", "b/1", "b/2"], [])
        await b.settle()
        b.tell([], ["a/1"])
        b.tell([], ["b/1"])
        b.publish("b/2")
        b.come()
        b.tell([], ["b/2"])
        await b.settle()
        assert await b.kept() == set()
        b.copies.close()


async def test_copies_are_the_retained_messages_of_the_interest_however_that_changes(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with opened(tmp_path) as log:
        b = Neighbour(log)
        for _ in range(20):
            for _ in range(chance.randint(1, 12)):
                topic = chance.choice(TOPICS)
                match chance.randrange(6):
                    case 0:
                        b.publish(topic)
                    case 1:
                        b.publish(topic, b"")
                    case 2:
                        b.come(chance.randint(1, 3))
                    case 3:
                        for _ in range(chance.randint(1, 8)):
                            await asyncio.sleep(0)
                    case _:
                        picked = chance.sample(FILTERS, 2)
                        b.tell([one for one in picked if one not in b.told], [one for one in picked if one in b.told])
                assert not any(map(b.copies.is_outdated, b.steady)), "it would be published once more"
            await b.settle()
            assert await b.kept() == {topic for topic in b.there if b.copies.wants(topic)}
        b.copies.close()
