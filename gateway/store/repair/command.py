"""``holdfast gateway repair``: a damaged store becomes a whole one, with all that can be read of it.

Nothing is read by way of SQLite's trees of pages, so that a page that is lost costs only what was in it.
"""

import contextlib
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gateway.errors import StoreError, is_lock
from gateway.sessions import SESSION_PREFIX
from gateway.store import checksum, exchange, groups, identity, quarantine, schema
from gateway.store.folder import MESSAGES, TakenFolder, take_folder
from gateway.store.identity import Note
from gateway.store.pages import Pages
from gateway.store.reading import open_for_reading
from gateway.store.rebuild import Lost, Rebuild
from gateway.store.salvage import tables_of
from gateway.store.sessions import StoredSession, filters_of
from gateway.store.sessions import load as load_sessions
from gateway.store.wal import hides_transactions
from gateway.subscribers import GROUP_PREFIX
from wire.topics import parse_shared

SPOILT_ROW = """
SELECT 1 FROM message_group WHERE crc != crc_of(last, count, seq, deflated, body)
UNION ALL SELECT 1 FROM retained WHERE crc != crc_of_all(
    topic, position, payload, qos, properties, origin, epoch, seq, received_ms, received_by, publisher, expires_ms
)
UNION ALL SELECT 1 FROM identity WHERE crc != crc_of_all(epoch, run, round, before, wal_bytes, place)
UNION ALL SELECT 1 FROM cursor WHERE crc != crc_of_all(consumer, position, count)
UNION ALL SELECT 1 FROM ending WHERE crc != crc_of_all(number, consumer, body)
UNION ALL SELECT 1 FROM session WHERE crc != crc_of_all(client_id, topic_filter, body)
UNION ALL SELECT 1 FROM will WHERE crc != crc_of_all(
    session, user, topic, payload, qos, retain, properties, delay_s, due_ms
)
"""
FOUND_MOST = 10  # of what SQLite says of a file


@dataclass
class Report:
    """What was found in a store, and what became of it.

    ``damage`` says what is wrong, a sentence each; where there is none, nothing else was done, and ``messages``, the
    number of those that were kept, is None. ``file_lost`` says that the database itself was missing or empty, so that
    all in it is lost but what its WAL had. ``old`` is the folder with the damaged files. ``sessions_lost`` are clients
    whose subscriptions are lost, as far as they are known; ``kept`` counts rows by table.
    """

    store: str
    damage: list[str]
    old: str | None = None
    file_lost: bool = False
    messages: int | None = None
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
    if not folder.exists():
        raise StoreError(f"message store {folder}: there is none")
    path = folder / MESSAGES
    with contextlib.closing(take_folder(folder)) as taken:
        try:
            note = taken.note()
            problem = "" if hides_transactions(path) else identity.problem_of(path, note)
            if not problem and not path.exists():
                raise StoreError(f"message store {folder}: there is none")
            _check_ours(path)
            report = Report(str(folder), [f"{MESSAGES}: {problem}"] if problem else _damage_of(path))
            if report.damage:
                report.file_lost = not (path.exists() and path.stat().st_size)
                rebuild = Rebuild(Pages(path, is_alone=identity.has_other_wal(path)), origin, note, bool(problem))
                _rebuild(folder, taken, rebuild, routes, report)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"message store {folder}: {error}") from error
        return report


def _rebuild(folder: Path, taken: TakenFolder, rebuild: Rebuild, routes: Iterable[str], report: Report) -> None:
    making = exchange.begin(folder)
    report.lost = rebuild.write(making / MESSAGES, lambda sessions: [*routes, *_consumers_of(sessions)])
    report.messages = rebuild.messages
    report.kept.update(rebuild.kept)
    report.damaged_pages = rebuild.salvage.damaged_pages
    report.damaged_rows = rebuild.damaged_rows
    report.sessions_lost = _sessions_lost(making / MESSAGES)
    _note(folder, making, report)
    announce(making / MESSAGES, taken)
    report.old = str(exchange.offer(folder))


def announce(made: Path, taken: TakenFolder) -> None:
    """The lock file knows the new database before it is in its place, and the old one until then."""
    with contextlib.closing(sqlite3.connect(made)) as connection:
        said = identity.load(connection)
    before = taken.note()
    taken.write_note(Note(said.epoch, [*(before.runs if before else [])[-2:], said.run], 0), is_synced=True)


def _note(folder: Path, making: Path, report: Report) -> None:
    """Among the new files are the quarantine notes of before, and one of this repair."""
    quarantine.begin_anew_if_damaged(folder / quarantine.FILE, quarantine.TABLE)
    lost = sum(one.messages for one in report.lost)
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    place = f"{report.damaged_pages} pages and {report.damaged_rows} rows, at {when}"
    kept = "the damaged files, in the folder `damaged-` and the time"
    repaired = quarantine.Note("the store", place, "; ".join(report.damage), kept, lost)
    quarantine.set_aside(making, [*quarantine.notes_in(folder), repaired])


def _consumers_of(sessions: dict[str, StoredSession]) -> list[str]:
    """The names that the log has for sessions and the groups that they are in."""
    names = map(parse_shared, filters_of(sessions.values()))
    groups_of = [f"{GROUP_PREFIX}{share_name}/{bare}" for share_name, bare in names if share_name is not None]
    return [SESSION_PREFIX + client_id for client_id in sessions] + groups_of


def _sessions_lost(messages: Path) -> list[str]:
    """The clients that have a place in the log and no description."""
    with contextlib.closing(sqlite3.connect(messages)) as connection:
        sessions = {client_id for client_id, one in load_sessions(connection).items() if one.description is not None}
        places = (consumer for (consumer,) in connection.execute("SELECT consumer FROM cursor ORDER BY consumer"))
        clients = [place.removeprefix(SESSION_PREFIX) for place in places if place.startswith(SESSION_PREFIX)]
    return [client_id for client_id in clients if client_id not in sessions]


def _check_ours(path: Path) -> None:
    """Raises StoreError for what says that it is something else."""
    pages = Pages(path)
    if pages.header_damaged or pages.wal_damaged or not pages.count:
        return  # it may be there that it says whose it is
    application_id, version = pages.kind
    if application_id != schema.APPLICATION_ID:
        raise StoreError(f"message store {path}: not a message store")
    if version != schema.SCHEMA_VERSION:
        raise StoreError(f"message store {path}: of version {version}, and this repairs {schema.SCHEMA_VERSION}")


def _damage_of(path: Path) -> list[str]:
    """Says what is wrong with a file, a sentence each."""
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
            return found or _damage_of_messages(connection)
    except sqlite3.DatabaseError as error:
        if is_lock(error):
            raise
        return [str(error)]


def _damage_of_messages(connection: sqlite3.Connection) -> list[str]:
    present = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if missing := sorted(table.name for table in tables_of(schema.make) if table.name not in present):
        return [f"table {name} is missing" for name in missing]
    connection.create_function("crc_of", 5, groups.crc_of)
    checksum.add_to_sql(connection)
    is_spoilt = connection.execute(f"{SPOILT_ROW} LIMIT 1").fetchone() is not None
    return ["messages, places, sessions or wills are not as they were stored"] if is_spoilt else []
