"""What is kept of sessions across restarts: an entry for each session, and one for each of its subscriptions."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from gateway.errors import ADVICE, StoreError, advice_on
from gateway.store import quarantine, shelf
from gateway.store.quarantine import Note
from gateway.store.shelf import Entry, Shelf
from gateway.store.wal import hides_transactions
from gateway.subscriptions import Subscription

FILE, TABLE = "sessions.sqlite", "session"
SEPARATOR, BEHIND = "\0", "\1"  # no client identifier holds the first [MQTT-1.5.4-2]
SPOILT = "it is not as it was stored"
ORPHAN = "its session's entry is damaged"
Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)


class SessionDescription(msgspec.Struct, frozen=True):
    """One durable session, but for its subscriptions, and its cursor, which is in the message log.

    ``disconnected_ms`` is the unix time at which its connection ended, None while there is one; ``user`` is who made
    it.
    """

    expiry_s: int
    disconnected_ms: int | None
    user: str | None = None


class _Description1(SessionDescription, frozen=True):
    """A session as version 1 had it: as a whole."""

    subscriptions: list[Subscription] = msgspec.field(default_factory=list)
    shared: dict[str, Subscription] = msgspec.field(default_factory=dict)


@dataclass
class StoredSession:
    """A session with its subscriptions by topic filter, that of a shared one with its share name."""

    description: SessionDescription
    subscriptions: dict[str, Subscription] = field(default_factory=dict)


class SessionStore:
    """A file; a change is durable when its call returns, or sqlite3.Error says why it is not."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / FILE
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sessions")
        self._endings: dict[str, int] = {}  # of sessions of which the file may still say something
        self._ended = 0
        self._shelf: Shelf

    async def open(self) -> dict[str, StoredSession]:
        """Opens the file and returns all sessions in it; what the medium has spoilt is set aside. Raises StoreError."""
        try:
            return await self._call(self._open)
        except (sqlite3.Error, msgspec.MsgspecError) as error:
            raise StoreError(f"session store {self._path}: {error}{advice_on(error)}") from error

    async def save(self, client_id: str, entries: Mapping[str, SessionDescription | Subscription | None]) -> None:
        """Writes entries of a session by topic filter, that with the name "" is its description; None removes one."""
        ending = self._endings.get(client_id)
        await self._call(partial(self._write, client_id, dict(entries), ending is not None))
        self._forget_ending(client_id, ending)

    def note_ended(self, client_id: str) -> None:
        """A session that may be in the file is no more."""
        self._ended += 1
        self._endings[client_id] = self._ended

    async def remove(self, client_id: str) -> None:
        """Removes a session that has ended, if that has not been done yet."""
        if ending := self._endings.get(client_id):
            await self._call(partial(self._remove, client_id))
            self._forget_ending(client_id, ending)

    async def close(self) -> None:
        await self._call(self._shelf.close)
        self._thread.shutdown()

    def _forget_ending(self, client_id: str, ending: int | None) -> None:
        if ending is not None and self._endings.get(client_id) == ending:
            del self._endings[client_id]

    def _open(self) -> dict[str, StoredSession]:
        if hides_transactions(self._path):
            raise sqlite3.DatabaseError(f"its WAL is damaged, and sessions are behind that{ADVICE}")
        entries = shelf.read(self._path, TABLE)
        sessions, spoilt = sessions_from(entries)
        if notes := notes_of(spoilt):
            quarantine.set_aside(self._folder, notes)
            for note in notes:
                logger.error("session store: %s was set aside: %s", note.place, note.reason)
        self._shelf = Shelf(self._path, TABLE)
        if any(is_of_version_1(entry) for entry in entries):
            self._shelf.put(entries_of(sessions))
        self._shelf.remove_rows(spoilt)
        return sessions

    def _write(
        self, client_id: str, entries: dict[str, SessionDescription | Subscription | None], is_anew: bool
    ) -> None:
        if is_anew:
            self._remove(client_id)
        if removed := [key_of(client_id, name) for name, entry in entries.items() if entry is None]:
            self._shelf.remove(removed)
        kept = {key_of(client_id, name): _encode(entry) for name, entry in entries.items() if entry is not None}
        self._shelf.put(kept)

    def _remove(self, client_id: str) -> None:
        self._shelf.remove_with(client_id, SEPARATOR, BEHIND)

    async def _call(self, function: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)


def key_of(client_id: str, topic_filter: str) -> str:
    """Returns the key of a subscription, of the session itself for the filter ""."""
    return client_id + SEPARATOR + topic_filter if topic_filter else client_id


def entries_of(sessions: Mapping[str, StoredSession]) -> dict[str, bytes]:
    """Returns the bodies of all entries by their keys; a description takes the place of version 1's, after the rest."""
    bodies = {
        key_of(client_id, topic_filter): _encode(subscription)
        for client_id, session in sessions.items()
        for topic_filter, subscription in session.subscriptions.items()
    }
    return bodies | {client_id: _encode(session.description) for client_id, session in sessions.items()}


def sessions_from(entries: list[Entry]) -> tuple[dict[str, StoredSession], list[Entry]]:
    """Returns the sessions that entries tell of, and the entries that are spoilt, or of a session that is."""
    sessions: dict[str, StoredSession] = {}
    subscriptions: list[tuple[str, str, Entry]] = []
    spoilt: list[Entry] = []
    for entry in entries:
        client_id, separator, topic_filter = entry.key.partition(SEPARATOR)
        if is_of_version_1(entry):
            sessions[client_id] = _session_from_1(entry.value)
        elif entry.body is None:
            spoilt.append(entry)
        elif separator:
            subscriptions.append((client_id, topic_filter, entry))
        else:
            sessions[client_id] = StoredSession(msgspec.msgpack.decode(entry.body, type=SessionDescription))
    for client_id, topic_filter, entry in subscriptions:
        if client_id in sessions and entry.body is not None:
            subscription = msgspec.msgpack.decode(entry.body, type=Subscription)
            sessions[client_id].subscriptions[topic_filter] = subscription
        else:
            spoilt.append(entry)
    return sessions, spoilt


def is_of_version_1(entry: Entry) -> bool:
    """Whether an entry was written by version 1, which had no checksums: as a map of MessagePack."""
    if entry.body is not None or SEPARATOR in entry.key:
        return False
    try:
        _session_from_1(entry.value)
    except (msgspec.MsgspecError, TypeError):
        return False
    return True


def notes_of(spoilt: list[Entry]) -> list[Note]:
    """Returns what is said of entries that are set aside."""
    notes = []
    for entry in spoilt:
        key = entry.key.encode(errors="surrogateescape")
        client_id, _, topic_filter = key.decode(errors="replace").partition(SEPARATOR)
        what = f"the subscription {topic_filter!r}" if topic_filter else "the session"
        body = msgspec.msgpack.encode([key, entry.value])
        reason = SPOILT if entry.body is None else ORPHAN
        notes.append(Note(FILE, f"{what} of client {client_id!r}", reason, "in the note", body=body))
    return notes


def _encode(entry: SessionDescription | Subscription | None) -> bytes:
    return msgspec.msgpack.encode(entry)


def _session_from_1(value: bytes) -> StoredSession:
    old = msgspec.msgpack.decode(value, type=_Description1)
    own = {subscription.topic_filter: subscription for subscription in old.subscriptions}
    description = SessionDescription(old.expiry_s, old.disconnected_ms, old.user)
    return StoredSession(description, own | old.shared)
