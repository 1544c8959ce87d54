"""``holdfast gateway repair``: a damaged store becomes a whole one, with all that can be read of it.

Nothing is read by way of SQLite's trees of pages, so that a page that is lost costs only what was in it.
"""

import contextlib
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from gateway import session_store
from gateway.errors import StoreError, is_lock
from gateway.session_store import StoredSession
from gateway.sessions import SESSION_PREFIX
from gateway.store import checksum, exchange, groups, quarantine, schema, shelf
from gateway.store.folder import MESSAGES, take_folder
from gateway.store.pages import Pages
from gateway.store.quarantine import Note
from gateway.store.reading import open_for_reading
from gateway.store.rebuild import Lost, Rebuild
from gateway.store.salvage import Salvage, tables_of
from gateway.store.shelf import Entry, Shelf
from gateway.subscribers import GROUP_PREFIX
from wire.topics import parse_shared

SESSIONS = session_store.FILE
MAKE_SESSIONS = f"CREATE TABLE {session_store.TABLE} (key TEXT PRIMARY KEY NOT NULL, value BLOB NOT NULL)"
SPOILT_ROW = """
SELECT 1 FROM message_group WHERE crc != crc_of(last, count, seq, deflated, body)
UNION ALL SELECT 1 FROM retained WHERE crc != crc_of_all(
    topic, position, payload, qos, properties, origin, epoch, seq, received_ms, received_by, publisher, expires_ms
)
"""
SPOILT_SINCE_5 = """
UNION ALL SELECT 1 FROM cursor WHERE crc != crc_of_all(consumer, position, count)
UNION ALL SELECT 1 FROM will WHERE crc != crc_of_all(
    session, user, topic, payload, qos, retain, properties, delay_s, due_ms
)
"""
VERSIONS = (4, schema.SCHEMA_VERSION)
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
    _note(folder, making, report)
    report.old = str(exchange.offer(folder))


def _note(folder: Path, making: Path, report: Report) -> None:
    """Among the new files are the quarantine notes of before, and one of this repair."""
    quarantine.begin_anew_if_damaged(folder / quarantine.FILE, quarantine.TABLE)
    lost = sum(one.messages for one in report.lost)
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    place = f"{report.damaged_pages} pages and {report.damaged_rows} rows, at {when}"
    kept = "the damaged files, in the folder `damaged-` and the time"
    repaired = Note("the store", place, "; ".join(report.damage), kept, lost)
    quarantine.set_aside(making, [*quarantine.notes_in(folder), repaired])


def _rebuild_sessions(pages: Pages, path: Path, report: Report) -> dict[str, StoredSession]:
    salvage = Salvage(pages, lambda connection: connection.execute(MAKE_SESSIONS))
    rows = [(cast(str, key), cast(bytes, value)) for _, (key, value) in salvage.rows()]
    sessions, spoilt = session_store.sessions_from([Entry(0, *row, shelf.unseal(*row)) for row in rows])
    with contextlib.closing(Shelf(path, session_store.TABLE)) as opened:
        opened.put(session_store.entries_of(sessions))
    report.damaged_pages = salvage.damaged_pages
    report.damaged_rows = salvage.damaged_rows + len(spoilt)
    report.kept["session"] = len(sessions)
    report.kept["subscription"] = sum(len(session.subscriptions) for session in sessions.values())
    return sessions


def _consumers_of(sessions: dict[str, StoredSession]) -> list[str]:
    """The names that the log has for sessions and the groups that they are in."""
    filters = {topic_filter for session in sessions.values() for topic_filter in session.subscriptions}
    names = (parse_shared(topic_filter) for topic_filter in sorted(filters))
    groups_of = [f"{GROUP_PREFIX}{share_name}/{bare}" for share_name, bare in names if share_name is not None]
    return [SESSION_PREFIX + client_id for client_id in sessions] + groups_of


def _sessions_lost(messages: Path, sessions: dict[str, StoredSession]) -> list[str]:
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
    application_id, version = pages.kind
    if application_id != schema.APPLICATION_ID:
        raise StoreError(f"message store {path}: not a message store")
    if version not in VERSIONS:
        raise StoreError(
            f"message store {path}: of version {version}, and this repairs {VERSIONS[0]} and {VERSIONS[1]}"
        )


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
        with open_for_reading(path) as connection:
            found = [what for (what,) in connection.execute(f"PRAGMA integrity_check({FOUND_MOST})") if what != "ok"]
            if path.name == MESSAGES and not found:
                found += _damage_of_messages(connection)
        if path.name == SESSIONS and not found:
            found += _damage_of_sessions(path)
        return found
    except sqlite3.DatabaseError as error:
        if is_lock(error):
            raise
        return [str(error)]


def _damage_of_sessions(path: Path) -> list[str]:
    _, spoilt = session_store.sessions_from(shelf.read(path, session_store.TABLE))
    return ["sessions are not as they were stored"] if spoilt else []


def _damage_of_messages(connection: sqlite3.Connection) -> list[str]:
    present = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if missing := sorted(table.name for table in tables_of(schema.make) if table.name not in present):
        return [f"table {name} is missing" for name in missing]
    connection.create_function("crc_of", 5, groups.crc_of)
    checksum.add_to_sql(connection)
    spoilt = SPOILT_ROW if schema.version_of(connection) == VERSIONS[0] else SPOILT_ROW + SPOILT_SINCE_5
    is_spoilt = connection.execute(f"{spoilt} LIMIT 1").fetchone() is not None
    return ["messages, places or wills are not as they were stored"] if is_spoilt else []
