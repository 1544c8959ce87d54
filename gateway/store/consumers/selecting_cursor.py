"""A route's cursor: it may leave messages out by rules of the route, such as nine of ten."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gateway.message import Message
from gateway.store.consumers.cursor import PACKET_IDENTIFIERS, Cursor
from gateway.store.consumers.delivery import Delivery, ReasonToDrop
from gateway.store.consumers.tally import identifiers_used
from gateway.store.tables.drops import SELECTED, Epoch


class SelectingCursor(Cursor):
    """A cursor that leaves messages out.

    These leave ranges ``selected`` as soon as the place is behind them, and with it in one transaction. So when the
    consumer comes to messages again after a crash, none of them has a range already.

    Messages that are left out take up none of ``window``, however many there are between two that are not.

    ``tell_left_out`` is called with messages that rules leave out, and their positions. ``saves_passing``: the place is
    saved even if the cursor only passes messages, as something is known of these.
    """

    def __init__(self, *args: Any, **keys: Any) -> None:
        super().__init__(*args, **keys)
        self._taken_before = self._taken
        self._selects = False
        self._leaving: list[tuple[int, Message]] = []  # since the last look at the place
        self._left: deque[tuple[int, Epoch, int]] = deque()  # position, epoch and seq
        self.tell_left_out: Callable[[Iterable[tuple[int, Message]]], None] | None = None
        self.saves_passing = False

    @property
    def saved_position(self) -> int:
        """Where the cursor goes on after a crash: all of its messages up to here were acknowledged."""
        return self._log.saved_position(self.place)

    def takes_topic(self, topic: str) -> bool:
        """Whether messages of a topic that are stored now are for it, apart from those of some publishers."""
        return self in self._log.audience.takers(topic)

    def drop_by(self, limits: ReasonToDrop | None, leaves_out: Callable[[Message], bool] | None) -> None:
        """Drops messages by limits, and leaves others out, from now on.

        Args:
            limits: why a message is not handed out, None: all are.
            leaves_out: whether it is left out; asked once for each message that no limit drops, in their order. None:
                none is.
        """
        self._selects = leaves_out is not None
        self.reason_to_drop = limits
        if leaves_out is not None:
            head, _ = self._dup_up_to
            self._dup_up_to = head, self._taken_before + PACKET_IDENTIFIERS  # what was in flight may be far apart
            self.reason_to_drop = _either(limits, leaves_out)

    def acknowledge_all(self, packet_identifiers: Sequence[int]) -> int:
        """Does the same as for each cursor."""
        arrived = super().acknowledge_all(packet_identifiers)
        if self._left:
            self._note_left(self.position)
        return arrived

    async def evict(self, messages: list[tuple[int, Message]]) -> None:
        """Does the same as for each cursor."""
        await super().evict(messages)
        self._note_left(self.position)

    def drop(self) -> None:
        """Leaves the log for good; what was left out has its range."""
        self._note_left(self.unread_from)
        super().drop()

    async def _take_new(self, limit: int, may_have: Callable[[str], bool]) -> list[Delivery]:
        if not self._selects:
            return await super()._take_new(limit, may_have)
        deliveries: list[Delivery] = []
        while not deliveries:
            # Each message uses one up, also if it is left out.
            free = self._identifiers - identifiers_used(self._unacknowledged, self._taken)
            room = min(limit, self.window - len(self._unacknowledged), free)
            if room <= 0 or not (upcoming := await self._upcoming(room)):
                break
            deliveries = self._hand_out(upcoming[:free], room, may_have)
            self.tally.note_left_out(self._leaving)
            self._left.extend([(at, *_identity(one)) for at, one in self._leaving])
            if self._leaving and self.tell_left_out is not None:
                self.tell_left_out(self._leaving)
            self._leaving.clear()
            self._note_left(self.position)
            if not deliveries:
                await asyncio.sleep(0)  # reads from memory do not suspend
        return deliveries

    def _pass_over(self, reason: str, position: int, message: Message) -> None:
        if reason == SELECTED:
            self._leaving.append((position, message))
        else:
            super()._pass_over(reason, position, message)

    def _note_left(self, position: int) -> None:
        """Notes the messages up to a position that were left out."""
        left = self._left
        found: dict[Epoch, list[int]] = {}
        while left and left[0][0] <= position:
            _, epoch, seq = left.popleft()
            if (span := found.get(epoch)) is None:
                found[epoch] = [seq, seq, 1]
            else:
                span[0], span[1] = min(span[0], seq), max(span[1], seq)
                span[2] += 1
        if found:
            self._log.leave_out(self.consumer, found)


def _either(limits: ReasonToDrop | None, leaves_out: Callable[[Message], bool]) -> ReasonToDrop:
    def reason(message: Message) -> str | None:
        return (limits and limits(message)) or (SELECTED if leaves_out(message) else None)

    return reason


def _identity(message: Message) -> tuple[Epoch, int]:
    return (message.publisher, message.origin, message.epoch), (message.seq if message.origin else 0)
