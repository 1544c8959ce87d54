"""``holdfast gateway repair``: a damaged store becomes a whole one, with all that can be read of it.

Nothing is read by way of SQLite's trees of pages, so that a page that is lost costs only what was in it.
"""

import contextlib
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gateway.errors import StoreError
from gateway.session_store import SessionDescription
from gateway.sessions import SESSION_PREFIX
from gateway.store import exchange, groups, retained, schema
from gateway.store.folder import take_folder
from gateway.store.pages import Pages
from gateway.store.rebuild import Lost, Rebuild
from gateway.store.salvage import Salvage, tables_of
from gateway.subscribers import GROUP_PREFIX
from wire.topics import parse_shared

MESSAGES, SESSIONS = "messages.sqlite", "sessions.sqlite"
MAKE_SESSIONS = 'CREATE TABLE "session" (key TEXT PRIMARY KEY, value BLOB)'
SPOILT_ROW = """
SELECT 1 FROM message_group WHERE crc != crc_of(last, count, seq, deflated, body)
UNION ALL SELECT 1 FROM retained WHERE crc != crc_of_all(
    topic, position, payload, qos, properties, origin, epoch, seq, received_ms, received_by, publisher, expires_ms
) LIMIT 1
"""
FOUND_MOST = 10  # of what SQLite says of a file


@dataclass
class Report:
    """What was found in a store, and what became of it.

    ``damage`` says what is wrong, a sentence each; where there is none, nothing else was done. ``old`` is the folder
    with the damaged files. ``sessions_lost`` are clients whose subscriptions are lost; ``kept`` counts rows by table.
    """

    store: str
    damage: list[str]
    old: str | None = None
    messages: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    lost: list[Lost] = field(default_factory=list)
    damaged_pages: int = 0
    damaged_rows: int = 0
    sessions_lost: list[str] = field(default_factory=list)


def repair(folder: Path, origin: str, routes: Iterable[str]) -> Report:
    """Looks at a store, and repairs it where it is damaged; the damaged files stay.

    Args:
        folder: the store's.
        origin: the gateway's name.
        routes: the names of the log's consumers that are routes.

    Raises:
        StoreError: a gateway runs on it, it is none of ours, or the new one cannot be written; then it is as it was.
    """
    if not (folder / MESSAGES).exists() and not (folder / exchange.READY).exists():
        raise StoreError(f"message store {folder}: there is none")
    with contextlib.closing(take_folder(folder)):
        try:
            _check_ours(folder / MESSAGES)
            damage = [*_damage_of(folder / MESSAGES), *_damage_of(folder / SESSIONS)]
            report = Report(str(folder), damage)
            if damage:
                _rebuild(folder, origin, routes, report)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"message store {folder}: {error}") from error
        return report


def _rebuild(folder: Path, origin: str, routes: Iterable[str], report: Report) -> None:
    making = exchange.begin(folder)
    sessions = _rebuild_sessions(Pages(folder / SESSIONS), making / SESSIONS, report)
    rebuild = Rebuild(Pages(folder / MESSAGES), origin)
    report.lost = rebuild.write(making / MESSAGES, [*routes, *_consumers_of(sessions)])
    report.messages = rebuild.messages
    report.kept.update(rebuild.kept)
    report.damaged_pages += rebuild.salvage.damaged_pages
    report.damaged_rows += rebuild.damaged_rows
    if any(what.startswith(SESSIONS) for what in report.damage):
        report.sessions_lost = _sessions_lost(making / MESSAGES, sessions)
    report.old = str(exchange.offer(folder))


def _rebuild_sessions(pages: Pages, path: Path, report: Report) -> dict[str, SessionDescription]:
    salvage = Salvage(pages, lambda connection: connection.execute(MAKE_SESSIONS))
    sessions: dict[str, SessionDescription] = {}
    for _, (client_id, value) in salvage.rows():
        try:
            sessions[str(client_id)] = msgspec.msgpack.decode(value, type=SessionDescription)  # type: ignore[arg-type]
        except (msgspec.MsgspecError, TypeError):
            salvage.damaged_rows += 1
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(MAKE_SESSIONS)
        rows = ((client_id, msgspec.msgpack.encode(session)) for client_id, session in sessions.items())
        connection.executemany("INSERT INTO session VALUES (?, ?)", rows)
        connection.commit()
    report.damaged_pages, report.damaged_rows = salvage.damaged_pages, salvage.damaged_rows
    report.kept["session"] = len(sessions)
    return sessions


def _consumers_of(sessions: dict[str, SessionDescription]) -> list[str]:
    """The names that the log has for sessions and the groups that they are in."""
    shared = {topic_filter for session in sessions.values() for topic_filter in session.shared}
    names = (parse_shared(topic_filter) for topic_filter in sorted(shared))
    return [SESSION_PREFIX + client_id for client_id in sessions] + [f"{GROUP_PREFIX}{s}/{f}" for s, f in names]


def _sessions_lost(messages: Path, sessions: dict[str, SessionDescription]) -> list[str]:
    """The clients that have a place in the log and no description."""
    with contextlib.closing(sqlite3.connect(messages)) as connection:
        places = (consumer for (consumer,) in connection.execute("SELECT consumer FROM cursor ORDER BY consumer"))
        clients = [place.removeprefix(SESSION_PREFIX) for place in places if place.startswith(SESSION_PREFIX)]
    return [client_id for client_id in clients if client_id not in sessions]


def _check_ours(path: Path) -> None:
    """Raises StoreError for what says that it is something else."""
    pages = Pages(path)
    if pages.header_damaged or pages.wal_damaged:
        return  # it may be there that it says whose it is
    if pages.kind != (schema.APPLICATION_ID, schema.SCHEMA_VERSION):
        application_id, version = pages.kind
        if application_id == schema.APPLICATION_ID:
            raise StoreError(f"message store {path}: of version {version}, and this repairs {schema.SCHEMA_VERSION}")
        raise StoreError(f"message store {path}: not a message store")


def _damage_of(path: Path) -> list[str]:
    """Says what is wrong with a file, a sentence each."""
    if not path.exists():
        return []
    pages = Pages(path)
    damage = []
    if pages.wal_damaged:
        damage.append("its WAL is damaged")
    if pages.expected_count > pages.count:
        damage.append(f"its last {pages.expected_count - pages.count} pages are missing")
    if pages.header_damaged:
        damage.append("its header is damaged")
    if not (pages.header_damaged or pages.wal_damaged):  # else it does not see what is there
        damage += _damage_that_sqlite_sees(path)
    return [f"{path.name}: {what}" for what in damage]


def _damage_that_sqlite_sees(path: Path) -> list[str]:
    try:
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            found = [what for (what,) in connection.execute(f"PRAGMA integrity_check({FOUND_MOST})") if what != "ok"]
            if path.name == MESSAGES and not found:
                found += _damage_of_messages(connection)
        return found
    except sqlite3.DatabaseError as error:
        return [str(error)]


def _damage_of_messages(connection: sqlite3.Connection) -> list[str]:
    present = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if missing := sorted(table.name for table in tables_of(schema.make) if table.name not in present):
        return [f"table {name} is missing" for name in missing]
    connection.create_function("crc_of", 5, groups.crc_of)
    connection.create_function("crc_of_all", -1, retained.crc_of)
    return ["messages are not as they were stored"] if connection.execute(SPOILT_ROW).fetchone() else []
