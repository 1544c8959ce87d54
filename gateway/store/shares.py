"""How much of the log each client's messages are, in a memory that stays flat whatever is stored."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable

from gateway.message import Message
from gateway.store.backlog import Backlog, queued_size
from gateway.store.groups import Part

BLOCK = 64  # messages counted together, as long as few are stored
BLOCKS_MAX = 256  # beyond it two and two are put together, and a block gets twice as large


class Shares:
    """The messages that were stored since it was made, by publisher, until the log needs them no more.

    They are forgotten block by block, so that a share is too large by a part of a block at most.

    Args:
        begin: the position behind which it counts.
    """

    def __init__(self, begin: int = 0) -> None:
        self._begin = begin
        self._of: dict[str, Backlog] = {}
        self._blocks: deque[_Block] = deque()
        self._block = BLOCK

    def of(self, publisher: str) -> Backlog:
        """Returns how much a client's messages are; bytes are those of payload and topic name, or of whole packets."""
        return self._of.get(publisher) or Backlog()

    def note(self, last: int, parts: Iterable[Part]) -> None:
        """These have become durable, up to a position."""
        if not self._blocks or self._blocks[-1].messages >= self._block:
            self._blocks.append(_Block())
            if len(self._blocks) > BLOCKS_MAX:
                self._put_together()
        block = self._blocks[-1]
        block.last = last
        for part in parts:
            size = share_size(part)
            for shares in (self._of, block.shares):
                share = shares.setdefault(part.publisher, Backlog())
                share.messages += part.count
                share.bytes += size
            block.messages += part.count

    def take_out(self, position: int, publisher: str, messages: int, size: int) -> None:
        """Some messages of a client's were taken out of the log, from a position on."""
        index = bisect_left(self._blocks, position, key=lambda block: block.last)
        if index == len(self._blocks) or position <= self._begin:
            return
        for shares in (self._of, self._blocks[index].shares):
            if share := shares.get(publisher):
                share.messages = max(0, share.messages - messages)
                share.bytes = max(0, share.bytes - size)

    def forget(self, last: int) -> None:
        """Nobody needs anything up to a position any more."""
        while self._blocks and self._blocks[0].last <= last:
            for publisher, share in self._blocks.popleft().shares.items():
                left = self._of.setdefault(publisher, Backlog())
                left.messages -= share.messages
                left.bytes -= share.bytes
                if left.messages <= 0:
                    del self._of[publisher]
        if not self._blocks:
            self._block = BLOCK

    def _put_together(self) -> None:
        blocks = list(self._blocks)
        self._blocks = deque(map(_Block.join, blocks[0::2], blocks[1::2]))
        if len(blocks) % 2:
            self._blocks.append(blocks[-1])
        self._block *= 2


def share_size(part: Part) -> int:
    """Returns what a message counts for, or all of a run."""
    return queued_size(part) if isinstance(part, Message) else len(part.packets)


class _Block:
    """Messages that are next to each other, the last one at position ``last``."""

    __slots__ = ("last", "messages", "shares")

    def __init__(self) -> None:
        self.last = 0
        self.messages = 0
        self.shares: dict[str, Backlog] = {}

    def join(self, following: "_Block") -> "_Block":
        """Returns itself, with the block behind it."""
        self.last = following.last
        self.messages += following.messages
        for publisher, more in following.shares.items():
            share = self.shares.setdefault(publisher, Backlog())
            share.messages += more.messages
            share.bytes += more.bytes
        return self
