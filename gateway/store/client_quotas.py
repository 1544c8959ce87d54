"""How much of the log each owner's messages are, in constant memory."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable

from gateway.message import Message
from gateway.store.consumers.delivery import Backlog
from gateway.store.tables.log_rows import Part

BLOCK = 64  # messages that are counted together while few are stored
BLOCKS_MAX = 256  # beyond it each two blocks become one, and new blocks are twice as large


class ClientQuotas:
    """The messages stored since it was made, by owner, until the log no longer needs them.

    All messages of a publisher count for the owner that it had when the first of them was stored. They are forgotten
    block by block, so that a quota is too large by a part of a block at most.

    Args:
        begin: the position behind which it counts.
    """

    def __init__(self, begin: int = 0) -> None:
        self._begin = begin
        self._of: dict[str, Backlog] = {}
        self._publishers: dict[str, _Publisher] = {}
        self._blocks: deque[_Block] = deque()
        self._block = BLOCK

    def of(self, owner: str) -> Backlog:
        """Returns how much an owner has stored; bytes count payload and topic name, or whole packets."""
        return self._of.get(owner) or Backlog()

    def note(self, last: int, parts: Iterable[Part]) -> None:
        """Counts messages that have become durable, up to a position."""
        if not self._blocks or self._blocks[-1].messages >= self._block:
            self._blocks.append(_Block())
            if len(self._blocks) > BLOCKS_MAX:
                self._put_together()
        block = self._blocks[-1]
        block.last = last
        for part in parts:
            size = quota_size(part)
            self._publishers.setdefault(part.publisher, _Publisher(part.owner))
            self._count(part.publisher, part.count, size)
            block.add(part.publisher, part.count, size)
            block.messages += part.count

    def take_out(self, position: int, publisher: str, messages: int, size: int) -> None:
        """Subtracts messages of a publisher that were taken out of the log, from a position on."""
        index = bisect_left(self._blocks, position, key=lambda block: block.last)
        if index == len(self._blocks) or position <= self._begin:
            return
        block = self._blocks[index]
        if quota := block.quotas.get(publisher):
            is_all = messages >= quota.messages
            messages, size = (quota.messages, quota.bytes) if is_all else (messages, min(size, quota.bytes))
            block.add(publisher, -messages, -size)
            self._count(publisher, -messages, -size)

    def forget(self, last: int) -> None:
        """Subtracts all messages up to a position: no consumer needs them."""
        while self._blocks and self._blocks[0].last <= last:
            for publisher, quota in self._blocks.popleft().quotas.items():
                self._count(publisher, -quota.messages, -quota.bytes)
        if not self._blocks:
            self._block = BLOCK

    def _count(self, publisher: str, messages: int, size: int) -> None:
        """Adds messages of a publisher; negative numbers subtract."""
        known = self._publishers.get(publisher)
        if known is None:
            return  # all of them were taken out before
        known.messages += messages
        quota = self._of.setdefault(known.owner, Backlog())
        quota.messages += messages
        quota.bytes += size
        if not known.messages:
            del self._publishers[publisher]
        if not quota.messages:
            del self._of[known.owner]

    def _put_together(self) -> None:
        blocks = list(self._blocks)
        self._blocks = deque(map(_Block.join, blocks[0::2], blocks[1::2]))
        if len(blocks) % 2:
            self._blocks.append(blocks[-1])
        self._block *= 2


def quota_size(part: Part) -> int:
    """Returns the bytes that a message counts for, or a whole batch."""
    return part.content_size if isinstance(part, Message) else len(part.packets)


class _Publisher:
    """The owner of a client's messages, and how many they are."""

    __slots__ = ("messages", "owner")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.messages = 0


class _Block:
    """Consecutive messages, up to the position ``last``."""

    __slots__ = ("last", "messages", "quotas")

    def __init__(self) -> None:
        self.last = 0
        self.messages = 0
        self.quotas: dict[str, Backlog] = {}

    def join(self, following: "_Block") -> "_Block":
        """Adds the following block; returns itself."""
        self.last = following.last
        self.messages += following.messages
        for publisher, more in following.quotas.items():
            self.add(publisher, more.messages, more.bytes)
        return self

    def add(self, publisher: str, messages: int, size: int) -> None:
        """Adds messages of a publisher; negative numbers subtract."""
        quota = self.quotas.setdefault(publisher, Backlog())
        quota.messages += messages
        quota.bytes += size
