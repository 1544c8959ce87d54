"""All consumers of the log and their places: which places are to be saved, and which messages no consumer needs."""

import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping

from gateway.message import Message
from gateway.store.consumer_names import BACKFILL, KEPT, LOST
from gateway.store.consumers.audience import Audience
from gateway.store.consumers.cursor import Cursor
from gateway.store.consumers.keepers import Keepers
from gateway.store.tables import cursors
from gateway.store.tables.cursors import Place
from gateway.store.tables.drops import GATEWAY
from gateway.store.tables.evicted import EvictedMessage
from gateway.store.tables.log_rows import Work

PASSED_MOST = 100_000  # messages of others that a consumer may have to skip again after a crash

UNKNOWN: Place = (0, -1)
"""Stands for a saved place whose write has failed: it differs from every real place, so that it is saved again."""


class Consumers:
    """The log's consumers: the cursors of this process, and the saved places of durable consumers without a cursor.

    Args:
        saved: the places as they are in the file.
        keepers: what keeps messages besides.

    ``gone`` is the last position that no consumer gets any more: evicted from a full store, or delivered to all and
    deleted. The file has it as the place of GATEWAY, written in the transaction that deletes, as saved places may be
    older. ``returned`` counts how often a consumer came back to its place, or to an earlier one, ``failed_saves`` how
    often places could not be saved.
    """

    def __init__(self, saved: dict[str, Place], keepers: Keepers) -> None:
        self._saved = saved
        self.keepers = keepers
        self.gone = gone_of(saved)
        self._away = {name: self._behind_gone(place) for name, place in saved.items() if _is_consumers(name)}
        self._cursors: dict[str, Cursor] = {}
        self.returned = self.failed_saves = 0
        self._saved_with: dict[str, dict[str, Callable[[], list[Work]]]] = {}

    @property
    def cursors(self) -> list[Cursor]:
        """The cursors of this process."""
        return list(self._cursors.values())

    def names(self) -> list[str]:
        """Returns the names of the durable consumers, with or without a cursor."""
        return sorted(self._durable())

    def attach(self, cursor: Cursor, head: int) -> Place:
        """Returns the place where a consumer goes on, the head for a new one; ValueError if it has a cursor already."""
        place = cursor.place
        if place in self._cursors:
            raise ValueError(f"consumer {place!r} has a cursor already")
        self._cursors[place] = cursor
        self.returned += place in self._away or LOST in self._away
        return self._away.pop(place, self._away.get(LOST, (head, 0))) if cursor.durable else (head, 0)

    def note_earlier_place(self) -> None:
        """A consumer goes on at an earlier place than before."""
        self.returned += 1

    def saved_position(self, name: str) -> int:
        """Returns the position of a saved place, 0 if there is none."""
        return self._saved.get(name, UNKNOWN)[0]

    def detach(self, cursor: Cursor) -> None:
        """Removes a cursor; the place of a durable consumer is kept."""
        del self._cursors[cursor.place]
        if cursor.durable:
            self._away[cursor.place] = (cursor.position, cursor.count)

    def forget(self, consumer: str) -> Callable[[sqlite3.Connection], None] | None:
        """Removes the place of a consumer without a cursor; returns the work that removes it from the file, if it is
        there.
        """
        self._away.pop(consumer, None)
        return cursors.remove(consumer) if self._saved.pop(consumer, None) else None

    def evict(self, oldest: list[tuple[int, Message]], note_evicted: Callable[[str, Message], EvictedMessage]) -> None:
        """The log drops the oldest messages; open cursors learn from the log which messages they lose.

        Args:
            oldest: the messages, at least one.
            note_evicted: makes the object that learns how the delivery of an evicted message ends, for a consumer and
                a message.
        """
        messages, last = dict(oldest), oldest[-1][0]
        self.trim(last)
        for name, place in self._away.items():
            self._away[name] = self._behind_gone(place)
        self.keepers.evict(messages, last, note_evicted)
        for cursor in self._cursors.values():
            if cursor.flight.entries:
                cursor.lose(messages, last, note_evicted)

    def trim(self, last: int) -> None:
        """No consumer needs messages up to a position; they are about to be deleted."""
        self.gone = max(self.gone, last)
        self.keepers.trim(last)

    def losers_of(
        self, oldest: list[tuple[int, Message]], audience: Audience[Cursor]
    ) -> Iterator[tuple[list[str], list[Message]]]:
        """Yields names of consumers with the messages that wait for them, out of the oldest messages of the log.

        Messages in flight are not among these. Of a consumer without a cursor, such as a route that is no longer
        configured, only the place is known, so all messages behind it count. GATEWAY stands for consumers without a
        name here: sessions that have ended while the scan for their messages goes on, and consumers with a corrupt
        place.
        """
        lost, _ = self._away.get(LOST, (sys.maxsize, 0))
        unknown_from = self.keepers.kept_from(lost)
        places = [
            (GATEWAY, unknown_from),
            *((name, place) for name, (place, _) in self._away.items() if name != LOST),
        ]
        for name, place in places:
            if behind := [message for position, message in oldest if position > place]:
                yield [name], behind
        yield from self.losers_among(oldest, topics_by_cursor(oldest, audience))

    def losers_among(
        self, oldest: list[tuple[int, Message]], topics_of: Mapping[Cursor, list[str]]
    ) -> Iterator[tuple[list[str], list[Message]]]:
        """Does the same for some cursors, each with the topic names among the messages that it takes."""
        first, last = oldest[0][0], oldest[-1][0]
        alike: dict[tuple[int, frozenset[str]], list[str]] = {}  # by place and topic names
        for cursor, topics in topics_of.items():
            if cursor.closed or cursor.waiting_from >= last:  # a closed one leaves the audience slice by slice
                continue
            behind_all = cursor.all_wait_behind(first - 1)
            if behind_all is not None:
                allowed = frozenset(filter(cursor.rights.may_receive, topics))
                alike.setdefault((behind_all, allowed), []).append(cursor.consumer)
            elif waiting := [message for position, message in oldest if cursor.is_waiting_for(position, message)]:
                yield [cursor.consumer], waiting
        for (place, allowed), names in alike.items():
            waiting = [one for position, one in oldest if position > place and one.qos and one.topic in allowed]
            if waiting:
                yield names, waiting

    def save_with(self, consumer: str, what: str, works: Callable[[], list[Work]] | None) -> None:
        """Writes these works, as they are then, in each transaction that saves a consumer's place; None ends it."""
        saved = self._saved_with.setdefault(consumer, {})
        saved.pop(what, None)
        if works is not None:
            saved[what] = works

    def unsaved(self) -> list[tuple[str, int, int]]:
        """Returns (name, position, count) of each place that should be saved.

        A cursor that has only moved past messages of other consumers is saved when these are PASSED_MOST or more: after
        a crash it moves past them again.
        """
        places = [
            (name, position, cursor.count)
            for name, cursor in self._cursors.items()
            if cursor.durable and self._is_far(name, position := cursor.position, cursor)
        ]
        return places + self.unsaved_of([GATEWAY, *self._away])

    def unsaved_of(self, names: Iterable[str]) -> list[tuple[str, int, int]]:
        """Returns the same for some consumers and their backfills, however little they have moved."""
        both = (place for name in names for place in (name, f"{BACKFILL}{name}"))
        places = ((name, self._place_of(name)) for name in both)
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

    def _is_far(self, name: str, position: int, cursor: Cursor) -> bool:
        saved_position, saved_count = self._saved.get(name, UNKNOWN)
        passed = position - saved_position
        return cursor.count != saved_count or passed >= PASSED_MOST or (passed > 0 and cursor.saves_each_move)

    def works_with(self, saved: list[tuple[str, int, int]]) -> list[Work]:
        """Returns the works that belong to these places."""
        found = (works for name, *_ in saved for works in self._saved_with.get(name, {}).values())
        return [work for works in found for work in works()]

    def note_saved(self, saved: list[tuple[str, int, int]]) -> None:
        """These places are being written: the file has them, unless ``note_unsaved`` follows."""
        self._saved.update((name, (position, count)) for name, position, count in saved)

    def note_unsaved(self, saved: list[tuple[str, int, int]]) -> None:
        """The write of these places has failed."""
        self.failed_saves += 1
        self._saved.update((name, UNKNOWN) for name, *_ in saved if name in self._saved)

    def needed_from(self, head: int) -> int:
        """Returns the position behind which a consumer needs messages."""
        here = min((cursor.position for cursor in self._cursors.values()), default=head)
        pinned_from = self.keepers.pinned_from
        return min(here, self.kept_from(head), head if pinned_from is None else pinned_from - 1)

    def kept_from(self, head: int) -> int:
        """Returns the position behind which every message is kept, as the needs of some consumer are unknown now."""
        away = (position for position, _ in self._away.values())
        return min([self.keepers.kept_from(head), *away])

    def _durable(self) -> set[str]:
        return self._away.keys() | {name for name, cursor in self._cursors.items() if cursor.durable}


def _is_consumers(name: str) -> bool:
    """Whether a saved place is that of a consumer."""
    return name != GATEWAY and not name.startswith(KEPT)


def gone_of(saved: dict[str, Place]) -> int:
    """Returns the last position that no consumer gets any more, by the saved places."""
    return saved.get(GATEWAY, (0, 0))[0]


def topics_by_cursor(messages: Iterable[tuple[int, Message]], audience: Audience[Cursor]) -> dict[Cursor, list[str]]:
    """Returns the cursors that take some of these messages, each with their topic names."""
    found: dict[Cursor, list[str]] = {}
    for topic in dict.fromkeys(message.topic for _, message in messages):
        for cursor in audience.takers(topic):
            found.setdefault(cursor, []).append(topic)
    return found
