"""How many of the messages that wait for one consumer are of each origin, so that no origin pushes out all others."""

from gateway.message import Message
from gateway.store.consumers.delivery import Backlog
from gateway.store.tables.log_rows import Part, PublishBatch

ORIGINS_MAX = 10_000  # of which messages wait; further ones are counted together, as one origin, until none waits
OTHERS = ""


class OriginShares:
    """The messages that wait for one consumer, by origin.

    Args:
        max_messages: the most messages of one origin, None: no limit.
        max_bytes: the most bytes of these.

    ``excess`` is how many messages, and how many bytes of these, are beyond the limits of their origins. Which messages
    these are shows when the consumer comes to them: of an origin that is beyond a limit the oldest one is dropped.
    Where bytes decide, their number is an estimate.
    """

    def __init__(self, max_messages: int | None, max_bytes: int | None) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._of: dict[str, Backlog] = {}
        self.excess = Backlog()

    def is_over(self, origin: str) -> bool:
        """Whether an origin is beyond a limit."""
        share = self._of.get(origin) or self._of.get(OTHERS)
        return share is not None and share.exceeds(self._max_messages, self._max_bytes)

    def add(self, part: Part) -> None:
        """Counts a message, or all messages of a batch."""
        if not isinstance(part, PublishBatch):
            self._add(part.origin, part.count, part.content_size)
        elif not part.bring_identities:
            self._add(part.gateway, part.count, part.content_size)
        else:
            for message in part.messages():
                self._add(message.origin, 1, message.content_size)

    def subtract(self, message: Message) -> None:
        """A message waits no more."""
        origin = message.origin if message.origin in self._of else OTHERS
        if share := self._of.get(origin):
            self._change(origin, share, -1, -message.content_size)

    def clear(self) -> None:
        """Begins anew, with nothing."""
        self._of.clear()
        self.excess = Backlog()

    def _add(self, origin: str, messages: int, size: int) -> None:
        # An origin is either among the others or by itself: it does not become one of its own while others wait.
        if origin not in self._of and (OTHERS in self._of or len(self._of) >= ORIGINS_MAX):
            origin = OTHERS
        self._change(origin, self._of.setdefault(origin, Backlog()), messages, size)

    def _change(self, origin: str, share: Backlog, messages: int, size: int) -> None:
        before = self._excess_of(share)
        share.add(size, messages)
        after = self._excess_of(share)
        self.excess.add(after.bytes - before.bytes, after.messages - before.messages)
        if not share.messages:
            del self._of[origin]

    def _excess_of(self, share: Backlog) -> Backlog:
        if not share.exceeds(self._max_messages, self._max_bytes):
            return Backlog()
        kept = 1.0
        if self._max_messages is not None:
            kept = min(kept, self._max_messages / share.messages)
        if self._max_bytes is not None and share.bytes:
            kept = min(kept, self._max_bytes / share.bytes)
        return Backlog(share.messages - int(kept * share.messages), share.bytes - int(kept * share.bytes))
