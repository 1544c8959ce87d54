"""What is whole in a damaged message store goes into a new file, and what is lost is noted there as ranges.

The messages of the log have checksums, and so have the rows of some tables; any other one counts as whole where it can
be read. New identities come from a new epoch, since nobody can tell which ones of the old epoch were given to messages
that are lost.
"""

import contextlib
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gateway.message import Message
from gateway.store import checksum, groups, identity, schema
from gateway.store.damage import DAMAGED
from gateway.store.drops import GATEWAY
from gateway.store.drops import INSERT as INSERT_RANGE
from gateway.store.flows import BEGUN, RELEASED
from gateway.store.groups import CorruptGroup, Gap, Group
from gateway.store.identity import Note
from gateway.store.pages import Pages
from gateway.store.salvage import Salvage
from gateway.store.sessions import StoredSession
from gateway.store.sessions import load as load_sessions
from wire.identity import SEQ_MAX

SEALED = ("cursor", "ending", "retained", "session", "will")
UNSYNCED = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"  # the file counts only once all of it is synced
ADD_CONSUMER = "INSERT OR IGNORE INTO cursor VALUES (?, ?, ?, ?)"
NEEDED_FROM = f"""
SELECT max(min(position), coalesce((SELECT position FROM cursor WHERE consumer = '{GATEWAY}'), 0)) FROM (
    SELECT position FROM cursor WHERE consumer != '{GATEWAY}'
    UNION ALL SELECT position - 1 FROM flow WHERE state = {BEGUN} AND topic = ''
)
"""
# What was behind the newest message that is left is lost, and its position will be another's.
TAKE_BACK = (
    "UPDATE cursor SET position = :head, crc = crc_of_all(consumer, :head, count) WHERE position > :head",
    f"UPDATE flow SET position = 0, state = max(state, {RELEASED}) WHERE position > :head",
    """
    UPDATE retained SET position = :head, crc = crc_of_all(
        topic, :head, payload, qos, properties, origin, epoch, seq, received_ms, received_by, publisher, expires_ms
    ) WHERE position > :head
    """,
    "UPDATE owed SET position = :head WHERE position > :head",
    "DELETE FROM compacted WHERE last > :head",
)


@dataclass(frozen=True)
class Lost:
    """Messages that are lost: their positions, and this store's own identities that may be among theirs.

    ``messages`` is how many are known of; the last ones may have left no trace, so that ``last_seq`` has no end.
    """

    first_position: int
    messages: int
    first_seq: int
    last_seq: int


@dataclass
class _Stretch:
    """Consecutive messages in the new file; ``before`` and ``after`` are the last own numbers given up to then."""

    first: int
    last: int
    before: int
    after: int


class Rebuild:
    """Writes a message store anew.

    ``kept`` counts rows by table, ``messages`` those of the log, ``damaged_rows`` what was there and not whole.

    Args:
        pages: the damaged file.
        origin: the origin of this store's own identities.
        note: what the lock file says of the store.
        is_incomplete: whether a file is missing, or is not the one that was there.
    """

    def __init__(self, pages: Pages, origin: str, note: Note | None = None, is_incomplete: bool = False) -> None:
        self.kept: Counter[str] = Counter()
        self.messages = 0
        self.salvage = Salvage(pages, schema.make)
        self._pages = pages
        self._origin = origin
        self._spoilt: list[CorruptGroup] = []
        self._stretches: list[_Stretch] = []
        self._note = note
        self._is_incomplete = is_incomplete
        self._epoch = self._find_epoch()
        self._furthest = 0

    @property
    def damaged_rows(self) -> int:
        return self.salvage.damaged_rows + len(self._spoilt)

    def write(self, path: Path, consumers: Callable[[dict[str, StoredSession]], Iterable[str]]) -> list[Lost]:
        """Writes the new file; returns what is lost.

        Args:
            path: where it is made.
            consumers: returns those that there are, by the sessions; one whose place is lost begins at the oldest
                message that is left.

        Raises:
            sqlite3.Error: the file cannot be written.
        """
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.executescript(UNSYNCED)
            schema.make(connection)
            checksum.add_to_sql(connection)
            connection.execute("BEGIN")
            for table, row in self.salvage.rows():
                self._take(connection, table, row)
            self._stretches.sort(key=lambda stretch: stretch.first)
            self._put_in_order(connection, consumers(load_sessions(connection)))
            lost = list(self._lost(connection))
            now_ms = int(time.time() * 1000)
            ranges = [(self._epoch, one.first_seq, one.last_seq, one.messages) for one in lost]
            if self._note is not None and self._note.epoch != self._epoch:  # all of the store that was there before
                ranges.append((self._note.epoch, 1, SEQ_MAX, self._note.position))
            for one in ranges:
                connection.execute(INSERT_RANGE, (DAMAGED, GATEWAY, "", self._origin, *one, now_ms, now_ms))
            connection.execute("COMMIT")
        return lost

    def _find_epoch(self) -> int:
        """The store's epoch; where it is lost, the one of the note or of most messages, or else one that none has."""
        seen: Counter[int] = Counter()
        for table, row in Salvage(self._pages, schema.make).rows():
            if table == "identity" and checksum.is_whole(row):
                return cast(int, row[0])
            if table == "message_group":
                seen.update(self._epochs_in(cast(groups.Row, row)))
        if self._note is not None:
            return self._note.epoch
        return max(seen, key=seen.__getitem__, default=identity.draw_epoch())

    def _epochs_in(self, row: groups.Row) -> Iterator[int]:
        with contextlib.suppress(CorruptGroup):
            for part in groups.decode(row).parts:
                if isinstance(part, Message) and part.origin == self._origin:
                    yield part.epoch

    def _take(self, connection: sqlite3.Connection, table: str, row: tuple[Any, ...]) -> None:
        if table == "message_group":
            self._take_group(connection, cast(groups.Row, row))
        elif table in SEALED and not checksum.is_whole(row):
            self.salvage.damaged_rows += 1
        elif table != "identity":
            marks = ", ".join("?" * len(row))
            self.kept[table] += connection.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row).rowcount

    def _take_group(self, connection: sqlite3.Connection, row: groups.Row) -> None:
        try:
            group = groups.decode(row)
        except CorruptGroup as damage:
            self._spoilt.append(damage)
            return
        # A run has its identities from the store's epoch, which becomes another one; a message has its own.
        parts = [one for part in group.parts for one in ([part] if isinstance(part, Gap) else part.messages())]
        messages = [part for part in parts if isinstance(part, Message)]
        whole = Group(group.first, parts, group.last)
        if connection.execute(
            f"{groups.INSERT} ON CONFLICT DO NOTHING", groups.row_of(whole, 0, bool(row[3]))
        ).rowcount:
            self.messages += len(messages)
            own = [m.seq for m in messages if (m.origin, m.epoch) == (self._origin, self._epoch)]
            self._note_kept(_Stretch(group.first, group.last, min(own) - 1 if own else row[2], row[2]))

    def _note_kept(self, new: _Stretch) -> None:
        """Most rows stand in order, so that there are few stretches, however many messages there are."""
        before = self._stretches[-1] if self._stretches else None
        if before is not None and before.last + 1 == new.first:
            before.last, before.after = new.last, new.after
        else:
            self._stretches.append(new)

    def _put_in_order(self, connection: sqlite3.Connection, consumers: Iterable[str]) -> None:
        """Nobody's place is behind the newest message that is left, and everybody has one."""
        head = self._stretches[-1].last if self._stretches else 0
        (self._furthest,) = connection.execute("SELECT coalesce(max(position), 0) FROM cursor").fetchone()
        for statement in TAKE_BACK:
            connection.execute(statement, {"head": head})
        oldest = self._stretches[0].first if self._stretches else 1
        connection.executemany(ADD_CONSUMER, (checksum.sealed((name, oldest - 1, 0)) for name in consumers))

    def _lost(self, connection: sqlite3.Connection) -> Iterator[Lost]:
        """Yields what is missing of all that somebody needs."""
        (needed_from,) = connection.execute(NEEDED_FROM).fetchone()
        head = self._stretches[-1].last if self._stretches else 0
        expected = (head if needed_from is None else needed_from) + 1
        seq = 0
        for stretch in self._stretches:
            if (missing := stretch.first - expected) > 0:
                first = max(seq + 1, stretch.before + 1 - missing)
                numbers = (first, stretch.before) if first <= stretch.before else (0, 0)
                yield Lost(expected, missing, *numbers)
            expected = max(expected, stretch.last + 1)
            seq = stretch.after
        missing = self._end() - head
        is_damaged = self.salvage.damaged_pages or self.salvage.damaged_rows or self._pages.wal_damaged
        if missing or is_damaged or self._is_incomplete:
            yield Lost(head + 1, missing, seq + 1, SEQ_MAX)

    def _end(self) -> int:
        """The newest position that is known of: some cursor was there, or a damaged row follows on directly."""
        end = self._stretches[-1].last if self._stretches else 0
        for damage in sorted(self._spoilt, key=lambda damage: damage.last):
            if damage.first <= end + 1:
                end = max(end, damage.last)
        noted = self._note.position if self._note and self._note.epoch == self._epoch else 0
        return max(end, self._furthest, noted)
