"""Who takes from the log, and how far everybody is: what must be saved, and what nobody needs any more."""

import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from gateway.message import Message
from gateway.store.audience import Audience
from gateway.store.cursor import Cursor
from gateway.store.drops import GATEWAY
from gateway.store.flows import BEGUN, Flow

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
        self._held: Counter[int] = Counter()
        for flow in flows:
            if flow.state == BEGUN and not flow.topic:
                self.hold(flow.position)

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

    def evict(self, last: int) -> None:
        """Nobody gets anything up to a position any more; the cursors here are told by the log."""
        self.trim(last)
        for name, place in self._away.items():
            self._away[name] = self._behind_gone(place)
        for position in [position for position in self._held if position <= last]:
            del self._held[position]
        for keeper in self._keepers:
            keeper.evict(last)

    def trim(self, last: int) -> None:
        """No consumer needs anything up to a position, which is to be deleted."""
        self.gone = max(self.gone, last)

    def losers_of(self, oldest: list[tuple[int, Message]], audience: Audience) -> Iterator[tuple[str, Message]]:
        """Yields which of some messages, the oldest that are kept, a consumer needs or may need, each with its name.

        It is GATEWAY where others may as well: all but those that are away, of which nothing but the place is known.
        Such is a route without a table in the configuration, for which nothing is counted that others need, too.
        """
        lost, _ = self._away.get(LOST, (sys.maxsize, 0))
        kept_from = min([lost, *(keeper.position for keeper in self._keepers)])
        handed_out = {position for cursor in self._cursors.values() for position in cursor.handed_out}
        for position, message in oldest:
            if (
                position > kept_from
                or position in handed_out
                or position in self._held
                or any(cursor.is_waiting_for(position, message) for cursor in audience.takers(message.topic))
            ):
                yield GATEWAY, message
            else:
                for name, (place, _) in self._away.items():
                    if place < position:
                        yield name, message

    def hold(self, position: int) -> None:
        """A message is needed until it is let go again, wherever the cursors are; nobody gets it who is too late."""
        if position > self.gone:
            self._held[position] += 1

    def let_go(self, position: int) -> None:
        """The opposite of ``hold``."""
        if position in self._held:
            self._held[position] -= 1
            if not self._held[position]:
                del self._held[position]

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


def remove(consumer: str) -> Callable[[sqlite3.Connection], None]:
    """Returns what takes a consumer's place out of the file."""

    def write(connection: sqlite3.Connection) -> None:
        connection.execute(REMOVE, (consumer,))

    return write
