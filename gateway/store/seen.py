"""The identities of messages that came over links: a message that comes again is known, and not stored again.

An identity has one of three standings. It is *new*. It is *pending* from the moment at which its message is handed to
an `AckBatch` until that message's transaction is over. It is *stored* once that transaction is durable, for
FORGET_AFTER_MS at least, while there are no more than CHUNKS_MAX chunks. So no message counts as a duplicate of one
that a power cut can take away.

Nor does one count as a duplicate of another message: a device whose flash was restored from a copy gives its old
numbers to new messages. So a short digest of topic and payload is beside each number, as long as all digests together
have no more than DIGESTS_MAX bytes. A number that comes with another digest is a *conflict*, and its message is stored
like a new one.

The tables are written now and then, not with each message: behind ``position`` the log itself has the
identities, and a start reads them there. So the log keeps what is behind ``position``, unless a full store evicts it.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any, Protocol

from gateway.message import Message
from gateway.store.consumers.registry import Consumers
from gateway.store.group_commit import Witness
from gateway.store.seen_chunks import ChunkSet, join
from gateway.store.tables.log_rows import Gap, LogRow, Part, PublishBatch, Work, is_qos_0
from gateway.store.tables.seen import (
    CHUNK,
    CHUNK_BITS,
    DIGEST,
    Key,
    Mask,
    Masks,
    SaveSeen,
    SeenChunk,
    SeenRows,
    masks_of,
)
from wire.bulk.content_digest import content_digest, digests_of
from wire.bulk.property_block import EncodedIdentity
from wire.bulk.publishes import cut_columns, cut_contents

CHUNKS_MAX = 12_288  # with the digests some 15 MB at most in memory, and 20 MB in the file
DIGESTS_MAX = 3_000_000  # bytes
QOS_0_CHUNKS_MAX = 1024
QOS_0_DIGESTS_MAX = 100_000  # bytes
SAVE_AFTER_S = 30.0  # each save writes a page for some origins
SAVE_AFTER_MESSAGES = 50_000  # a start reads as many messages
HURRY_S = 1.0  # between two saves of a store that is nearly full

logger = logging.getLogger(__name__)


class Standing(Enum):
    """What is known of messages: all are new, all are stored, at least one is pending, or some are stored.

    In a conflict all identities are stored, and at least one of them was another message's.
    """

    NEW = "new"
    PENDING = "pending"
    STORED = "stored"
    CONFLICT = "conflict"
    MIXED = "mixed"


class Log(Protocol):
    """What this asks of the log."""

    head: int
    consumers: Consumers

    def submit(self, works: Sequence[Work], /) -> asyncio.Future[list[Any]]: ...

    async def read_rows(self, after: int, /) -> list[LogRow]: ...

    def changed(self) -> None: ...


class Seen:
    """Knows which messages came over links before. It is the log's; ``open`` makes it complete.

    ``has_rows`` is True once the file has rows of the table; before that nothing has come over a link.

    Args:
        log: stores the messages, and writes the table.
        rows: the table as it is in the file.
        own: origin and epoch of the identities that the store itself gives: they do not come over links.
        now_ms: returns the time as Unix time.
    """

    def __init__(
        self,
        log: Log,
        rows: SeenRows,
        own: tuple[str, int],
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._log = log
        self._own = own
        self._now_ms = now_ms
        self._stored = ChunkSet(CHUNKS_MAX, DIGESTS_MAX, rows.chunks.items())
        self._pending: dict[Key, int] = {}
        self._passed = ChunkSet(QOS_0_CHUNKS_MAX, QOS_0_DIGESTS_MAX)  # of messages of QoS 0, which no power cut leaves
        self.has_rows = bool(rows.chunks)
        self._is_open = self._is_closed = False
        self._dirty: dict[Key, int] = {}  # chunks that the file has otherwise, with the bits whose digests it lacks
        self._removed: list[Key] = []  # chunks that the file has and that are forgotten
        self._bare: list[Key] = []  # chunks whose digests the file has and that are forgotten
        self._saving: SaveSeen | None = None
        self._held = rows.position  # the file has all identities up to here
        self._tried = rows.position  # the head when the table was written last
        self._timer: asyncio.TimerHandle | None = None
        self._hurries_from_s = 0.0
        self._waiting: list[Callable[[], None]] = []

    @property
    def position(self) -> int:
        """The position behind which identities may be in the log alone."""
        return self._held if self._dirty or self._saving or not self._is_open else self._log.head

    def evict(self, position: int) -> None:
        """A full store drops the messages up to a position: after a crash their identities may be unknown."""
        self._held = max(self._held, position)

    async def open(self) -> None:
        """Notes the identities that only the log has, before messages come."""
        after = self._held
        try:
            while self.has_rows and after < self._log.head:
                for row in await self._log.read_rows(after):
                    self._add(self._masks_in(row))
                    after = row.last
        except sqlite3.Error as error:
            logger.error("messages that came over links just before the start may come twice: %s", error)
        self._is_open = True

    def standing(self, masks: Masks) -> Standing:
        """Returns what is known of messages."""
        is_new = is_stored = True
        for key, mask in masks.items():
            if self._pending and self._pending.get(key, 0) & mask.bits:
                return Standing.PENDING
            known = self._stored.bits_of(key) & mask.bits
            is_new = is_new and not known
            is_stored = is_stored and known == mask.bits
        if is_new or not is_stored:
            return Standing.NEW if is_new else Standing.MIXED
        is_other = any(self._stored.has_other(key, mask) for key, mask in masks.items())
        return Standing.CONFLICT if is_other else Standing.STORED

    def is_known(self, origin: str, epoch: int, seq: int) -> bool:
        """Whether a message with this identity came over a link, and is durable."""
        return bool(self._stored.bits_of((origin, epoch, seq >> CHUNK_BITS)) >> (seq & CHUNK - 1) & 1)

    def highest(self, origin: str, epoch: int) -> int:
        """Returns the highest sequence number of an origin's epoch that is durable, 0 if none is."""
        return self._stored.highest(origin, epoch)

    def note(self, masks: Masks) -> "SeenNote":
        """Makes identities pending; returns the work that has to be in the transaction of their messages.

        No other note that is pending has any of them.
        """
        self._expect(masks)
        if self.has_rows:
            return SeenNote(self, masks)
        now_ms = self._now_ms()  # the first one says from where a start has to read the log
        chunks = [(key, SeenChunk(mask.bits, now_ms, mask.digests), mask.bits) for key, mask in masks.items()]
        return SeenNote(self, masks, SaveSeen(chunks, [], [], self.position))

    def note_too(self, note: "SeenNote", masks: Masks) -> None:
        """Makes more identities pending, of messages that are in the transaction of a note which has not begun."""
        self._expect(masks)
        for key, mask in masks.items():
            before = note.masks.get(key)
            note.masks[key] = mask if before is None else Mask(*join(*before, mask))

    def take_qos_0(self, masks: Masks) -> Standing:
        """Returns what is known of a message of QoS 0. The next one like it is known; one of QoS 1 or 2 may be new."""
        found = self.standing(masks)
        if found is Standing.NEW:
            for key, mask in masks.items():
                if self._passed.bits_of(key) & mask.bits:
                    found = Standing.CONFLICT if self._passed.has_other(key, mask) else Standing.STORED
        if found in (Standing.NEW, Standing.CONFLICT):
            self._passed.add(masks, self._now_ms())
        return found

    def _expect(self, masks: Masks) -> None:
        for key, mask in masks.items():
            self._pending[key] = self._pending.get(key, 0) | mask.bits

    def wait(self, retry: Callable[[], None]) -> None:
        """Calls ``retry`` once, when pending identities have become stored or new."""
        self._waiting.append(retry)

    def settle(self, masks: Masks, *, is_stored: bool) -> None:
        """The transaction with pending identities is over. The log's head is still the one before it."""
        for key, mask in masks.items():
            left = self._pending[key] & ~mask.bits
            if left:
                self._pending[key] = left
            else:
                del self._pending[key]
        if is_stored:
            self._held = self.position
            self._add(masks)
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for retry in waiting:
                asyncio.get_running_loop().call_soon(retry)

    def note_stored(self) -> None:
        """The log's head has moved; it is told if ``has_rows``."""
        if self._log.head - self._tried >= SAVE_AFTER_MESSAGES:
            self.save()

    def make_room(self) -> None:
        """The store is nearly full: saves soon if messages are kept for this alone."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._hurries_from_s and self.position < self._log.consumers.needed_from(self._log.head):
            self._hurries_from_s = now_s + HURRY_S
            self.save()

    def save(self) -> None:
        """Writes the chunks that have changed, and up to where the log has been noted."""
        if self._saving is not None or self._is_closed or not self.has_rows:
            return
        self._disarm()
        self._held = self.position
        self._tried = self._log.head
        changed = self._dirty or {self._stored.newest: 0}
        chunks = [(key, self._stored[key], bits) for key, bits in changed.items()]
        self._saving = work = SaveSeen(chunks, self._removed, self._bare, self._log.head)
        self._dirty, self._removed, self._bare = {}, [], []
        self._log.submit([work]).add_done_callback(lambda done: self._saved(work, done))

    def close(self) -> None:
        """Saves what has changed; a start reads in the log what comes after this."""
        if self._dirty:
            self.save()
        self._is_closed = True
        self._disarm()

    def _saved(self, work: SaveSeen, done: asyncio.Future[list[Any]]) -> None:
        self._saving = None
        if done.exception():  # the log says it
            for key, _, bits in work.chunks:
                if self._stored.bits_of(key):
                    self._dirty[key] = self._dirty.get(key, 0) | bits
            self._removed = work.removed + self._removed
            self._bare = work.bare + self._bare
        else:
            self._held = max(self._held, work.position)
            self._log.changed()
        self._arm()

    def _add(self, masks: Masks) -> None:
        if not masks:
            return
        self.has_rows = True
        for key, mask in masks.items():
            self._dirty[key] = self._dirty.get(key, 0) | mask.bits
        forgotten = self._stored.add(masks, self._now_ms())
        for key in forgotten.chunks:
            self._dirty.pop(key, None)
            self._removed.append(key)
        self._bare += forgotten.digests
        self._arm()

    def _masks_in(self, row: LogRow) -> Masks:
        """Returns the messages of a row that brought identities, over links or not: all of these are durable."""
        found = [one for part in row.parts if not is_qos_0(part) for one in _brought_by(part)]
        return masks_of(one for one in found if one[:2] != self._own)

    def _arm(self) -> None:
        if self._timer is None and self._dirty and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(SAVE_AFTER_S, self.save)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class SeenNote(Witness):
    """The identities of messages, in the transaction that stores these.

    Args:
        seen: learns how the transaction ends.
        masks: the identities, which this changes.
        save: writes the first rows of the table; None if the file has some.
    """

    def __init__(self, seen: Seen, masks: Masks, save: SaveSeen | None = None) -> None:
        self._seen = seen
        self.masks = masks
        self._save = save

    def __call__(self, connection: sqlite3.Connection) -> None:
        if self._save is not None:
            self._save(connection)

    def succeed(self) -> None:
        self._seen.settle(self.masks, is_stored=True)

    def fail(self) -> None:
        self._seen.settle(self.masks, is_stored=False)


def masks_of_batch(identities: Iterable[EncodedIdentity], digests: Iterable[bytes]) -> Masks | None:
    """Returns messages by chunk, from their identities as they came in PUBLISHes; None if one is there twice."""
    runs: list[tuple[bytes, bytes, int, list[bytes]]] = []
    latest: dict[tuple[bytes, bytes], tuple[int, list[bytes]]] = {}
    for (epoch, digits, origin), digest in zip(identities, digests, strict=True):
        seq = int(digits)
        first, run = latest.get((epoch, origin), (-1, []))
        if seq != first + len(run):
            first, run = latest[epoch, origin] = seq, []
            runs.append((epoch, origin, first, run))
        run.append(digest[:DIGEST])
    masks: Masks = {}
    for epoch, origin, first, run in runs:
        end = first + len(run)
        start = first
        while start < end:
            key = origin.decode(), int(epoch, 16), start >> CHUNK_BITS
            count = min(end - start, CHUNK - (start & CHUNK - 1))
            mask = Mask((1 << count) - 1 << (start & CHUNK - 1), b"".join(run[start - first : start - first + count]))
            before = masks.get(key)
            if before is not None and before.bits & mask.bits:
                return None
            masks[key] = mask if before is None else Mask(*join(*before, mask))
            start += count
    return masks


def _brought_by(part: Part | Gap) -> list[tuple[str, int, int, bytes]]:
    """Returns identity and digest of a part's messages; a batch with identities of the store has none here."""
    if isinstance(part, Message):
        return [(part.origin, part.epoch, part.seq, content_digest(part.topic, part.payload))]
    if isinstance(part, PublishBatch) and part.bring_identities:
        identities = cut_columns(part.packets, part.level)[2]
        digests = digests_of(cut_contents(part.packets, part.level))
        return [(*identity, digest) for identity, digest in zip(identities, digests, strict=True)]
    return []
