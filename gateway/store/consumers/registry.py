"""Who takes from the log, and how far everybody is: what must be saved, and what nobody needs any more."""

import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from gateway.message import Message
from gateway.store.audience import Audience
from gateway.store.cursor import Cursor
from gateway.store.drops import GATEWAY
from gateway.store.flows import BEGUN, Flow
from gateway.store.unsettled import Missing

SCHEMA = """
CREATE TABLE cursor (
    consumer TEXT PRIMARY KEY,
    position INTEGER NOT NULL,
    count INTEGER NOT NULL,
    crc INTEGER NOT NULL
) STRICT;
"""
SAVE = "INSERT OR REPLACE INTO cursor VALUES (?, ?, ?, ?)"
REMOVE = "DELETE FROM cursor WHERE consumer = ?"
LOST = ""
"""The consumer at whose place those go on who have lost theirs, until all who were there before are here again."""

PASSED_MOST = 100_000  # messages for others that a consumer goes past again after a crash

Place = tuple[int, int]
"""A cursor's durable state: (position, count)."""

UNKNOWN: Place = (0, -1)
"""What the file says of a place where the write of it has failed: any place of a cursor's is another one."""


class Keeper(Protocol):
    """Who needs what is behind a position for a while, and gets nothing of it."""

    @property
    def position(self) -> int: ...

    def evict(self, position: int) -> None:
        """The log drops what is up to a position."""


class Consumers:
    """The log's consumers: the cursors of this process, and the durable places of those that are not here.

    Args:
        saved: the places as they are in the file.
        flows: the messages in the file that are on their way to a client, which their cursors are past.

    ``gone`` is the last position of what no consumer gets any more: a full store has dropped it, or all had it and it
    is deleted. The file has it as the place of GATEWAY, in the transaction that deletes it, since the places there may
    be older. ``returned`` is how often a consumer has come back to its place.
    """

    def __init__(self, saved: dict[str, Place], flows: Iterable[Flow]) -> None:
        self._saved = saved
        self.gone, _ = saved.get(GATEWAY, (0, 0))
        self._away = {name: self._behind_gone(place) for name, place in saved.items() if name != GATEWAY}
        self._cursors: dict[str, Cursor] = {}
        self.returned = 0
        self._keepers: set[Keeper] = set()
        self._held: dict[int, list[Flow]] = {}
        for flow in flows:
            if flow.state == BEGUN and not flow.topic:
                self.hold(flow)

    @property
    def cursors(self) -> list[Cursor]:
        """The cursors of this process."""
        return list(self._cursors.values())

    def names(self) -> list[str]:
        """Returns the names of the durable consumers, here or away."""
        return sorted(self._durable())

    def attach(self, cursor: Cursor, head: int) -> Place:
        """Returns the place where a consumer goes on, or the head for a new one; ValueError if it is here already."""
        if cursor.consumer in self._cursors:
            raise ValueError(f"consumer {cursor.consumer!r} has a cursor already")
        self._cursors[cursor.consumer] = cursor
        self.returned += cursor.consumer in self._away or LOST in self._away
        return self._away.pop(cursor.consumer, self._away.get(LOST, (head, 0))) if cursor.durable else (head, 0)

    def detach(self, cursor: Cursor) -> None:
        """The consumer goes away; the place of a durable one is kept."""
        del self._cursors[cursor.consumer]
        if cursor.durable:
            self._away[cursor.consumer] = (cursor.position, cursor.count)

    def forget(self, consumer: str) -> Callable[[sqlite3.Connection], None] | None:
        """Removes the place of a consumer that is away; returns what takes it out of the file, where it may be."""
        self._away.pop(consumer, None)
        return remove(consumer) if self._saved.pop(consumer, None) else None

    def evict(self, oldest: list[tuple[int, Message]], missing: Callable[[str, Message], Missing]) -> None:
        """The log drops the oldest messages that are kept; the cursors here are told by it of what waits for them.

        Args:
            oldest: the messages, at least one.
            missing: returns, for a consumer and a message that is on its way to it, what is told how that ends.
        """
        messages, last = dict(oldest), oldest[-1][0]
        self.trim(last)
        for name, place in self._away.items():
            self._away[name] = self._behind_gone(place)
        for position in [position for position in self._held if position <= last]:
            for flow in self._held.pop(position):
                if position in messages:
                    flow.missing = missing(flow.source, messages[position])
        for cursor in self._cursors.values():
            cursor.lose(messages, last, missing)
        for keeper in self._keepers:
            keeper.evict(last)

    def trim(self, last: int) -> None:
        """No consumer needs anything up to a position, which is to be deleted."""
        self.gone = max(self.gone, last)

    def losers_of(
        self, oldest: list[tuple[int, Message]], audience: Audience
    ) -> Iterator[tuple[list[str], list[Message]]]:
        """Yields names of consumers, and which of some messages, the oldest that are kept, wait for each of them.

        What is on its way to a client is not among them. Of a consumer that is away nothing but the place is known:
        all behind it may be for it. Such is a route without a table in the configuration. Messages come with GATEWAY
        where they may be for consumers that have ended and are not looked through yet, or that have lost their places.
        """
        lost, _ = self._away.get(LOST, (sys.maxsize, 0))
        unknown_from = min([lost, *(keeper.position for keeper in self._keepers)])
        places = [(GATEWAY, unknown_from), *((name, place) for name, (place, _) in self._away.items() if name != LOST)]
        for name, place in places:
            if behind := [message for position, message in oldest if position > place]:
                yield [name], behind
        first, last = oldest[0][0], oldest[-1][0]
        alike: dict[tuple[int, frozenset[str]], list[str]] = {}  # by place and topic names: the same wait for these
        for cursor, topics in _topics_by_cursor(oldest, audience).items():
            if cursor.closed or cursor.waiting_from >= last:  # a closed one leaves the audience slice by slice
                continue
            behind_all = cursor.all_wait_behind(first - 1)
            if behind_all is not None:
                allowed = frozenset(filter(cursor.rights.may_receive, topics))
                alike.setdefault((behind_all, allowed), []).append(cursor.consumer)
            elif waiting := [message for position, message in oldest if cursor.is_waiting_for(position, message)]:
                yield [cursor.consumer], waiting
        for (place, allowed), names in alike.items():
            if waiting := [message for position, message in oldest if position > place and message.topic in allowed]:
                yield names, waiting

    def hold(self, flow: Flow) -> None:
        """A flow's message is needed until it is let go, wherever the cursors are, or until it is evicted."""
        if flow.position > self.gone:
            self._held.setdefault(flow.position, []).append(flow)

    def let_go(self, flow: Flow) -> None:
        """The opposite of ``hold``."""
        if flows := self._held.get(flow.position):
            flows[:] = [other for other in flows if other is not flow]
            if not flows:
                del self._held[flow.position]

    def keep_for(self, keeper: Keeper) -> None:
        """What is behind a keeper's position is needed."""
        self._keepers.add(keeper)

    def keep_no_longer(self, keeper: Keeper) -> None:
        """The opposite of ``keep_for``."""
        self._keepers.remove(keeper)

    def unsaved(self) -> list[tuple[str, int, int]]:
        """Returns (name, position, count) where the file does not say what it should.

        A cursor here that only went past others' messages may do so again after a crash: that is worth no sync, unless
        they are many.
        """
        places = [
            (name, position, cursor.count)
            for name, cursor in self._cursors.items()
            if cursor.durable and self._is_far(name, position := cursor.position, cursor.count)
        ]
        return places + self.unsaved_of([GATEWAY, *self._away])

    def unsaved_of(self, names: Iterable[str]) -> list[tuple[str, int, int]]:
        """Returns the same of some consumers, however little they have moved."""
        places = ((name, self._place_of(name)) for name in names)
        return [(name, *place) for name, place in places if place is not None and place != self._saved.get(name)]

    def _place_of(self, name: str) -> Place | None:
        if name == GATEWAY:
            return (self.gone, 0) if self.gone else None
        if (cursor := self._cursors.get(name)) and cursor.durable:
            return cursor.position, cursor.count
        return self._away.get(name)

    def _behind_gone(self, place: Place) -> Place:
        position, count = place
        return max(position, self.gone), count

    def _is_far(self, name: str, position: int, count: int) -> bool:
        saved_position, saved_count = self._saved.get(name, UNKNOWN)
        return count != saved_count or position - saved_position >= PASSED_MOST

    def note_saved(self, saved: list[tuple[str, int, int]]) -> None:
        """These places are being written: the file says so, unless ``note_unsaved`` follows."""
        self._saved.update((name, (position, count)) for name, position, count in saved)

    def note_unsaved(self, saved: list[tuple[str, int, int]]) -> None:
        """The write of these places has failed."""
        self._saved.update((name, UNKNOWN) for name, *_ in saved if name in self._saved)

    def held_between(self, first: int, last: int) -> set[int]:
        """Returns the positions between two that are held."""
        return {position for position in self._held if first <= position <= last}

    def needed_from(self, head: int) -> int:
        """Returns the position behind which somebody needs the messages."""
        here = min((cursor.position for cursor in self._cursors.values()), default=head)
        return min(here, self.kept_from(head), min(self._held, default=head + 1) - 1)

    def kept_from(self, head: int) -> int:
        """Returns the position behind which everything is kept: some consumer's needs cannot be told now."""
        away = (position for position, _ in self._away.values())
        return min([head, *away, *(keeper.position for keeper in self._keepers)])

    def _durable(self) -> set[str]:
        return self._away.keys() | {name for name, cursor in self._cursors.items() if cursor.durable}


def _topics_by_cursor(messages: Iterable[tuple[int, Message]], audience: Audience) -> dict[Cursor, list[str]]:
    found: dict[Cursor, list[str]] = {}
    for topic in dict.fromkeys(message.topic for _, message in messages):
        for cursor in audience.takers(topic):
            found.setdefault(cursor, []).append(topic)
    return found


def remove(consumer: str) -> Callable[[sqlite3.Connection], None]:
    """Returns what takes a consumer's place out of the file."""

    def write(connection: sqlite3.Connection) -> None:
        connection.execute(REMOVE, (consumer,))

    return write
