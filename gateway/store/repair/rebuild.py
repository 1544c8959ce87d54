"""Writes the whole rows of a damaged message store into a new file, and notes lost messages there as ranges.

Messages have checksums, and so have the rows of some tables; any other row counts as whole if it can be read. New
identities get a new epoch, as it is unknown which identities of the old epoch lost messages had.
"""

import contextlib
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from gateway.message import Message
from gateway.store.consumer_names import BACKFILL
from gateway.store.repair.pages import Pages
from gateway.store.repair.salvage import Salvage
from gateway.store.routes.lanes import BackfillRanges
from gateway.store.sqlite import marks, rows
from gateway.store.sqlite.marks import LockNote
from gateway.store.tables import connectors, log_rows, routes, schema
from gateway.store.tables.drops import DAMAGED, GATEWAY
from gateway.store.tables.drops import INSERT as INSERT_RANGE
from gateway.store.tables.log_rows import CorruptRow, Gap, LogRow
from gateway.store.tables.qos2 import BEGUN, RELEASED, Ranges, decode_ranges, encode_ranges
from gateway.store.tables.sessions import StoredSession
from gateway.store.tables.sessions import load as load_sessions
from wire.identity import SEQ_MAX

UNSYNCED = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"  # the file counts only once all of it is synced
ADD_CONSUMER = "INSERT OR IGNORE INTO cursor VALUES (?, ?, ?, ?)"
IS_ROUTES = "substr(CAST(session AS BLOB), -1) = x'00'"  # ROUTE_END, where SQLite ends a text
NEEDED_FROM = f"""
SELECT max(min(position), coalesce((SELECT position FROM cursor WHERE consumer = '{GATEWAY}'), 0)) FROM (
    SELECT position FROM cursor WHERE consumer != '{GATEWAY}'
    UNION ALL SELECT first_of(position, ranges) - 1 FROM flow
    WHERE topic = '' AND state <= iif({IS_ROUTES}, {RELEASED}, {BEGUN})
    UNION ALL SELECT position - 1 FROM refused
)
"""
DELETED = f"SELECT coalesce((SELECT position FROM cursor WHERE consumer = '{GATEWAY}'), 0)"
FLOWS_OF_BATCHES = "SELECT rowid, ranges FROM flow WHERE position > ? AND ranges != ?"
CUT_FLOW = "UPDATE flow SET position = ?, ranges = ? WHERE rowid = ?"
# Messages behind the newest one that is left are lost, and their positions will be used again.
TAKE_BACK = (
    "UPDATE cursor SET position = :head, crc = crc_of_all(consumer, :head, count) WHERE position > :head",
    f"UPDATE flow SET position = 0, state = max(state, {RELEASED}) WHERE position > :head",
    """
    UPDATE retained SET position = :head, crc = crc_of_all(
        topic, :head, payload, qos, properties, origin, epoch, seq, received_ms, received_by, publisher, expires_ms
    ) WHERE position > :head
    """,
    "UPDATE owed SET position = :head WHERE position > :head",
    """
    UPDATE seen SET position = :head, crc = crc_of_all(origin, epoch, chunk, bits, touched_ms, :head)
    WHERE position > :head
    """,
    "DELETE FROM compacted WHERE last > :head",
    "DELETE FROM refused WHERE position > :head",
    connectors.TAKE_BACK,
)


@dataclass(frozen=True)
class Lost:
    """Lost messages: their positions, and the identities of this store that may be among theirs.

    ``messages`` is how many are known of; 0 where it is not known whether any were. The last messages may have left no
    trace, so ``last_seq`` may have no end.
    """

    first_position: int
    messages: int
    first_seq: int
    last_seq: int


@dataclass
class _KeptRange:
    """Consecutive messages in the new file; ``before`` and ``after`` are the last sequence numbers given before and up
    to them.
    """

    first: int
    last: int
    before: int
    after: int


class Rebuild:
    """Writes a message store anew.

    ``kept`` counts rows by table, ``messages`` those of the log, ``damaged_rows`` the rows that are not whole.

    Args:
        pages: the damaged file.
        origin: the origin of this store's own identities.
        note: the lock file's note.
        is_incomplete: whether a file is missing, or belongs to another store.
    """

    def __init__(self, pages: Pages, origin: str, note: LockNote | None = None, is_incomplete: bool = False) -> None:
        self.kept: Counter[str] = Counter()
        self.messages = 0
        self.salvage = Salvage(pages, schema.make)
        self._pages = pages
        self._origin = origin
        self._corrupt: list[CorruptRow] = []
        self._ranges: list[_KeptRange] = []
        self._note = note
        self._is_incomplete = is_incomplete
        self._epoch = self._find_epoch()
        self._furthest = 0
        self._has_lost_places = False

    @property
    def damaged_rows(self) -> int:
        return self.salvage.damaged_rows + len(self._corrupt)

    def write(self, path: Path, consumers: Callable[[dict[str, StoredSession]], Iterable[str]]) -> list[Lost]:
        """Writes the new file; returns what is lost.

        Args:
            path: where it is made.
            consumers: returns the names of all consumers, given the sessions; a consumer whose place is lost begins at
                the oldest message that is left.

        Raises:
            sqlite3.Error: the file cannot be written.
        """
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.executescript(UNSYNCED)
            schema.make(connection)
            rows.add_to_sql(connection)
            connection.create_function("first_of", 2, _first_of)
            connection.execute("BEGIN")
            for table, row in self.salvage.rows():
                self._take(connection, table, row)
            self._ranges.sort(key=lambda kept: kept.first)
            self._put_in_order(connection, consumers(load_sessions(connection)))
            lost = list(self._lost(connection))
            for gap in lost:
                _leave_gap(connection, gap, self._ranges)
            now_ms = int(time.time() * 1000)
            ranges = [(self._epoch, one.first_seq, one.last_seq, one.messages) for one in lost]
            if self._note is not None and self._note.epoch != self._epoch:  # all of the store that was there before
                ranges.append((self._note.epoch, 1, SEQ_MAX, self._note.position))
            for one in ranges:
                connection.execute(INSERT_RANGE, (DAMAGED, GATEWAY, "", self._origin, *one, now_ms, now_ms))
            connection.execute("COMMIT")
        return lost

    def _find_epoch(self) -> int:
        """Returns the store's epoch; if it is lost, the epoch of the note or of most messages, or else a new one."""
        seen: Counter[int] = Counter()
        for table, row in Salvage(self._pages, schema.make).rows():
            if table == "identity" and rows.is_whole(row):
                return cast(int, row[0])
            if table == "message_group":
                seen.update(self._epochs_in(cast(log_rows.Row, row)))
        if self._note is not None:
            return self._note.epoch
        return max(seen, key=seen.__getitem__, default=marks.draw_epoch())

    def _epochs_in(self, row: log_rows.Row) -> Iterator[int]:
        with contextlib.suppress(CorruptRow):
            for part in log_rows.decode(row).parts:
                if isinstance(part, Message) and part.origin == self._origin:
                    yield part.epoch

    def _take(self, connection: sqlite3.Connection, table: str, row: tuple[Any, ...]) -> None:
        if table == "message_group":
            self._take_log_row(connection, cast(log_rows.Row, row))
        elif table == "identity":
            return  # the new file has its own
        elif table in schema.SEALED and not rows.is_whole(row):
            self.salvage.damaged_rows += 1
        else:
            values = ", ".join("?" * len(row))
            self.kept[table] += connection.execute(f"INSERT OR IGNORE INTO {table} VALUES ({values})", row).rowcount

    def _take_log_row(self, connection: sqlite3.Connection, row: log_rows.Row) -> None:
        try:
            kept = log_rows.decode(row)
        except CorruptRow as damage:
            self._corrupt.append(damage)
            return
        # A batch has identities of the store's epoch, which changes now; a message stored by itself keeps its identity.
        parts = [one for part in kept.parts for one in ([part] if isinstance(part, Gap) else part.messages())]
        messages = [part for part in parts if isinstance(part, Message)]
        whole = LogRow(kept.first, parts, kept.last)
        if connection.execute(
            f"{log_rows.INSERT} ON CONFLICT DO NOTHING", log_rows.row_of(whole, 0, bool(row[3]))
        ).rowcount:
            self.messages += len(messages)
            own = [m.seq for m in messages if (m.origin, m.epoch) == (self._origin, self._epoch)]
            self._note_kept(_KeptRange(kept.first, kept.last, min(own) - 1 if own else row[2], row[2]))

    def _note_kept(self, new: _KeptRange) -> None:
        """Extends the last range, or begins one: most rows are in order, so that there are few ranges."""
        before = self._ranges[-1] if self._ranges else None
        if before is not None and before.last + 1 == new.first:
            before.last, before.after = new.last, new.after
        else:
            self._ranges.append(new)

    def _put_in_order(self, connection: sqlite3.Connection, consumers: Iterable[str]) -> None:
        """Moves places that are behind the newest message back to it, and gives each consumer a place."""
        head = self._ranges[-1].last if self._ranges else 0
        (self._furthest,) = connection.execute("SELECT coalesce(max(position), 0) FROM cursor").fetchone()
        _cut_flows(connection, head)
        for statement in TAKE_BACK:
            connection.execute(statement, {"head": head})
        _cut_unsent(connection, head)
        oldest = self._ranges[0].first if self._ranges else 1
        names = [*consumers, *_cut_backfills(connection, head)]
        placed = connection.executemany(ADD_CONSUMER, (rows.sealed((name, oldest - 1, 0)) for name in names)).rowcount
        self._has_lost_places = placed > 0

    def _lost(self, connection: sqlite3.Connection) -> Iterator[Lost]:
        """Yields the missing messages that a consumer needs."""
        (needed_from,) = connection.execute(NEEDED_FROM).fetchone()
        head = self._ranges[-1].last if self._ranges else 0
        expected = (head if needed_from is None else needed_from) + 1
        seq = 0
        if self._has_lost_places and self._ranges:
            # A consumer whose place is lost may have needed what is before the oldest message that is left.
            (deleted,) = connection.execute(DELETED).fetchone()
            first, before = self._ranges[0].first, self._ranges[0].before
            if deleted + 1 < first <= expected and before:
                yield Lost(deleted + 1, 0, 1, before)
        for kept in self._ranges:
            if (missing := kept.first - expected) > 0:
                first = max(seq + 1, kept.before + 1 - missing)
                numbers = (first, kept.before) if first <= kept.before else (0, 0)
                yield Lost(expected, missing, *numbers)
            expected = max(expected, kept.last + 1)
            seq = kept.after
        missing = self._end() - head
        is_damaged = self.salvage.damaged_pages or self.salvage.damaged_rows or self._pages.wal_damaged
        if missing or is_damaged or self._is_incomplete:
            yield Lost(head + 1, missing, seq + 1, SEQ_MAX)

    def _end(self) -> int:
        """Returns the newest known position: a cursor's, the noted one, or that of a damaged row which directly
        follows.
        """
        end = self._ranges[-1].last if self._ranges else 0
        for damage in sorted(self._corrupt, key=lambda damage: damage.last):
            if damage.first <= end + 1:
                end = max(end, damage.last)
        noted = self._note.position if self._note and self._note.epoch == self._epoch else 0
        return max(end, self._furthest, noted)


def _leave_gap(connection: sqlite3.Connection, lost: Lost, kept: list[_KeptRange]) -> None:
    """Puts a gap in the place of lost messages that others follow, so that no later repair tells them again."""
    last = lost.first_position + lost.messages - 1
    if lost.messages and kept and last < kept[-1].last:
        connection.execute(
            log_rows.INSERT, log_rows.row_of(LogRow(lost.first_position, [Gap(lost.messages)], last), 0, False)
        )
        connection.execute(log_rows.NOTE_GAP, (last, lost.messages))


def _first_of(position: int, ranges: bytes) -> int:
    """Returns the first position of a flow."""
    readable = _ranges_in(ranges)
    return readable[0][0] if readable else position


def _cut_flows(connection: sqlite3.Connection, head: int) -> None:
    """Takes messages behind the newest one out of the flows of column batches, which keep the others."""
    for rowid, ranges in connection.execute(FLOWS_OF_BATCHES, (head, encode_ranges(()))).fetchall():
        left = tuple((first, min(last, head)) for first, last in _ranges_in(ranges) if first <= head)
        connection.execute(CUT_FLOW, (left[-1][1] if left else head + 1, encode_ranges(left), rowid))


def _cut_unsent(connection: sqlite3.Connection, head: int) -> None:
    """Says nothing of positions behind the newest message: they will be used again."""
    for consumer, chunks in routes.load_unsent(connection).items():
        left = {chunk: min(routes.CHUNK, max(0, head + 1 - chunk * routes.CHUNK)) for chunk in chunks}
        cut = [(chunk, bits & (1 << left[chunk]) - 1) for chunk, bits in chunks.items()]
        routes.save_unsent(consumer, cut)(connection)


def _cut_backfills(connection: sqlite3.Connection, head: int) -> list[str]:
    """Takes positions behind the newest message out of the backfills of routes; returns the names of their places."""
    found = []
    for route in routes.load(connection).values():
        left = BackfillRanges(route.backfill)
        left.cut(head)
        routes.save(msgspec.structs.replace(route, backfill=tuple(left)))(connection)
        if left:
            found.append(BACKFILL + route.consumer)
    return found


def _ranges_in(encoded: bytes) -> Ranges:
    with contextlib.suppress(msgspec.MsgspecError):
        return decode_ranges(encoded)
    return ()
