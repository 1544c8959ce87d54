"""The import of a backlog: the messages of a file are stored here with their identities, as if a route had sent them.

What was imported is noted on disk, batch by batch, so that the same file is never applied twice. If the machine stops
between a batch and its note, that batch comes again with the next import, with the same identities.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import msgspec

from gateway.routes import Message
from gateway.store import MessageLog, Work, quarantine, shelf
from uplink.carry.backlog_file import BacklogReader, BadBacklogFile, Header
from wire.bulk.column_batch import MalformedBatch, decode_batch
from wire.packet_types import PUBLISH
from wire.primitives import Reader, encode_varint
from wire.properties import MESSAGE_EXPIRY_INTERVAL, decode_properties

FILE, TABLE = "imports.sqlite", "import"

logger = logging.getLogger(__name__)


class ImportStopped(Exception):
    """The store takes no more messages now; the text says how far the import has come."""


class ImportNote(msgspec.Struct):
    """How much of a file was imported; ``is_done`` once that is all."""

    batches: int = 0
    messages: int = 0
    is_done: bool = False


class Imports:
    """Imports backlog files, one at a time.

    Args:
        folder: the store's folder.
        log: the gateway's store.
        publish: returns the work that stores a message, as for the PUBLISH of a client.
        may_take: whether the store takes a message of a topic now.
    """

    def __init__(
        self,
        folder: Path,
        log: MessageLog,
        publish: Callable[[Message], list[Work]],
        may_take: Callable[[str], bool],
    ) -> None:
        self._folder = folder
        self._log = log
        self._publish = publish
        self._may_take = may_take
        self._importing = asyncio.Lock()

    async def import_file(self, path: Path) -> int:
        """Stores the messages of a file that were not imported yet; returns how many that were.

        Nothing is stored of a file that is not complete, or not as it was written.

        Raises:
            BadBacklogFile: so it is, or it is no backlog file.
            ImportStopped: the store is full. The next import goes on there.
            OSError, sqlite3.Error: the file cannot be read, or the messages cannot be stored.
        """
        async with self._importing:
            header = await asyncio.to_thread(_check, path)
            note = await asyncio.to_thread(self._load, header.file)
            return 0 if note.is_done else await self._apply(path, header, note)

    async def _apply(self, path: Path, header: Header, note: ImportNote) -> int:
        before = note.messages
        with BacklogReader(path) as reader:
            batches = islice(reader.batches(), note.batches, None)
            while batch := await asyncio.to_thread(next, batches, None):
                messages = await asyncio.to_thread(_messages, path, batch, header)
                await self._store(messages, note.messages, path)
                note.batches += 1
                note.messages += len(messages)
                await asyncio.to_thread(self._save, header.file, note)
        note.is_done = True
        await asyncio.to_thread(self._save, header.file, note)
        logger.info("%s: %d messages of %s, route %s, imported", path, note.messages, header.gateway, header.route)
        return note.messages - before

    async def _store(self, messages: list[Message], before: int, path: Path) -> None:
        """Stores the messages of a batch in one transaction, in their order."""
        if not all(map(self._may_take, {message.topic for message in messages})):
            raise ImportStopped(
                f"{path}: {before} messages are imported, and the store takes no more now; import it again"
            )
        works = []
        for message in messages:
            # A newer value of the topic may have come by another way.
            message.retain = message.retain and self._log.reader.retained_size(message.topic) is None
            works += self._publish(message)
        await self._log.writer.wait_for_room()
        await self._log.submit(works)

    def _load(self, key: str) -> ImportNote:
        path = self._folder / FILE
        if away := quarantine.begin_anew_if_damaged(path, TABLE):
            quarantine.set_aside(self._folder, [quarantine.Note(FILE, "the whole file", "it cannot be read", away)])
            logger.error("notes of imports: they cannot be read and begin anew; what was there is in %s", away)
        notes = [entry.value for entry in shelf.read(path, TABLE, ImportNote) if entry.key == key]
        return (notes[0] if notes else None) or ImportNote()

    def _save(self, key: str, note: ImportNote) -> None:
        with contextlib.closing(shelf.Shelf(self._folder / FILE, TABLE)) as opened:
            opened.change({key: note})


def _check(path: Path) -> Header:
    """Reads a file to its end. Raises BadBacklogFile, OSError."""
    with BacklogReader(path) as reader:
        for batch in reader.batches():
            _messages(path, batch, reader.header)
        return reader.header


def _messages(path: Path, batch: bytes, header: Header) -> list[Message]:
    try:
        found = decode_batch(batch)
    except MalformedBatch as error:
        raise BadBacklogFile(f"{path}: a batch: {error}") from None
    messages = []
    for one in found.messages():
        properties = decode_properties(Reader(encode_varint(len(one.block)) + one.block), PUBLISH)
        interval_s = properties.get(MESSAGE_EXPIRY_INTERVAL)
        messages.append(
            Message(
                one.topic,
                one.payload,
                one.qos,
                one.retain,
                properties,
                one.origin,
                one.epoch,
                one.seq,
                one.received_ms,
                one.received_by,
                publisher=header.gateway,
                expires_ms=0 if interval_s is None else header.created_ms + 1000 * interval_s,
            )
        )
    return messages
