"""``holdfast gateway repair``: makes a whole store of a damaged one, with everything that can be read of it.

SQLite's trees of pages are not used, so that a lost page costs only the rows in it.
"""

import contextlib
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gateway.errors import StoreError, is_lock
from gateway.store.consumer_names import GROUP, SESSION
from gateway.store.repair.pages import Pages
from gateway.store.repair.rebuild import Lost, Rebuild
from gateway.store.repair.salvage import tables_of
from gateway.store.sqlite import marks, quarantine, swap_files
from gateway.store.sqlite.disk import words_of
from gateway.store.sqlite.folder import MESSAGES, TakenFolder, take_folder
from gateway.store.sqlite.marks import LockNote
from gateway.store.sqlite.rows import open_for_reading
from gateway.store.sqlite.wal import hides_transactions
from gateway.store.tables import schema
from gateway.store.tables.sessions import StoredSession, filters_of
from gateway.store.tables.sessions import load as load_sessions
from wire.topics import parse_shared

FOUND_MOST = 10  # lines of SQLite's own check


@dataclass
class Report:
    """What was found in a store, and what was done.

    ``damage`` has a sentence for each kind of damage. If it is empty, nothing else was done, and ``messages``, the
    number of messages kept, is None. ``file_lost`` means that the database itself was missing or empty, so that only
    its WAL was left. ``old`` is the folder with the damaged files. ``sessions_lost`` are the known clients whose
    subscriptions are lost; ``kept`` counts rows by table.
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


def repair(folder: Path, origin: str, consumers: Iterable[str]) -> Report:
    """Checks a store, and repairs it if it is damaged; the damaged files are kept.

    Args:
        folder: the store's folder.
        origin: the gateway's name.
        consumers: the names of the consumers that are no sessions and share groups.

    Raises:
        StoreError: a gateway runs on it, it is not a message store, or the new one cannot be written; then it is
            unchanged.
    """
    if not folder.exists():
        raise StoreError(f"message store {folder}: there is none")
    path = folder / MESSAGES
    with contextlib.closing(take_folder(folder)) as taken:
        try:
            note = taken.note()
            problem = "" if hides_transactions(path) else marks.problem_of(path, note)
            if not problem and not path.exists():
                raise StoreError(f"message store {folder}: there is none")
            _check_ours(path)
            report = Report(str(folder), [f"{MESSAGES}: {problem}"] if problem else _damage_of(path))
            if report.damage:
                _check_version(path, report.damage)
                report.file_lost = not (path.exists() and path.stat().st_size)
                rebuild = Rebuild(Pages(path, is_alone=marks.has_other_wal(path)), origin, note, bool(problem))
                _rebuild(folder, taken, rebuild, consumers, report)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"message store {folder}: {words_of(error, folder)}") from error
        return report


def _rebuild(folder: Path, taken: TakenFolder, rebuild: Rebuild, consumers: Iterable[str], report: Report) -> None:
    with swap_files.begun(folder) as making:
        try:
            report.lost = rebuild.write(making / MESSAGES, lambda sessions: [*consumers, *_consumers_of(sessions)])
            report.messages = rebuild.messages
            report.kept.update(rebuild.kept)
            report.damaged_pages = rebuild.salvage.damaged_pages
            report.damaged_rows = rebuild.damaged_rows
            report.sessions_lost = _sessions_lost(making / MESSAGES)
            _note(folder, making, report)
            announce(making / MESSAGES, taken)
            report.old = str(swap_files.offer(folder))
        except (sqlite3.Error, OSError) as error:  # while the new files still fill the disk
            raise StoreError(f"message store {folder}: {words_of(error, folder)}") from error


def announce(made: Path, taken: TakenFolder) -> None:
    """Notes both databases in the lock file, before the new one takes the place of the old one."""
    with contextlib.closing(sqlite3.connect(made)) as connection:
        said = marks.load(connection)
    before = taken.note()
    taken.write_note(LockNote(said.epoch, [*(before.runs if before else [])[-2:], said.run], 0), is_synced=True)


def _note(folder: Path, making: Path, report: Report) -> None:
    """Adds to the new files the quarantine notes of before, and one of this repair."""
    quarantine.begin_anew_if_damaged(folder / quarantine.FILE, quarantine.TABLE)
    lost = sum(one.messages for one in report.lost)
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    what = f"{report.damaged_pages} pages and {report.damaged_rows} rows, at {when}"
    kept = "the damaged files, in the folder `damaged-` and the time"
    repaired = quarantine.Note("the store", what, "; ".join(report.damage), kept, lost)
    quarantine.set_aside(making, [*quarantine.notes_in(folder), repaired])


def _consumers_of(sessions: dict[str, StoredSession]) -> list[str]:
    """Returns the consumer names of sessions and of the share groups that they are in."""
    names = map(parse_shared, filters_of(sessions.values()))
    groups_of = [f"{GROUP}{share_name}/{bare}" for share_name, bare in names if share_name is not None]
    return [SESSION + client_id for client_id in sessions] + groups_of


def _sessions_lost(messages: Path) -> list[str]:
    """Returns the clients with a place in the log and no session row."""
    with contextlib.closing(sqlite3.connect(messages)) as connection:
        sessions = {client_id for client_id, one in load_sessions(connection).items() if one.description is not None}
        consumers = (consumer for (consumer,) in connection.execute("SELECT consumer FROM cursor ORDER BY consumer"))
        clients = [name.removeprefix(SESSION) for name in consumers if name.startswith(SESSION)]
    return [client_id for client_id in clients if client_id not in sessions]


def _check_ours(path: Path) -> None:
    """Raises StoreError if the file says that it is something else."""
    pages = Pages(path)
    if pages.header_damaged or pages.wal_damaged or not pages.count:
        return  # the lost bytes may be the ones that say what it is
    application_id, version = pages.kind
    if application_id != schema.APPLICATION_ID:
        raise StoreError(f"message store {path}: not a message store")
    if not schema.OLDEST <= version <= schema.SCHEMA_VERSION:
        raise StoreError(
            f"message store {path}: of version {version}, and this reads versions {schema.OLDEST} to "
            f"{schema.SCHEMA_VERSION}: the release that made it repairs it"
        )


def _check_version(path: Path, damage: list[str]) -> None:
    """Raises StoreError if a damaged file says that it has an earlier version: its rows have other columns."""
    pages = Pages(path)
    if not (pages.header_damaged or pages.wal_damaged) and pages.count and pages.kind[1] != schema.SCHEMA_VERSION:
        raise StoreError(
            f"message store {path}: damaged, and of version {pages.kind[1]}: the release that made it repairs it, and "
            f"a start of this one upgrades it then to version {schema.SCHEMA_VERSION} ({'; '.join(damage)})"
        )


def _damage_of(path: Path) -> list[str]:
    """Returns a sentence for each kind of damage in a file."""
    pages = Pages(path)
    damage = []
    if pages.wal_damaged:
        damage.append("its WAL is damaged")
    if pages.expected_count > pages.count:
        damage.append(f"its last {pages.expected_count - pages.count} pages are missing")
    if pages.header_damaged:
        damage.append("its header is damaged")
    if not (pages.header_damaged or pages.wal_damaged):  # otherwise SQLite cannot read the pages
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
    if missing := schema.missing_tables(connection, [table.name for table in tables_of(schema.make)]):
        return [f"table {name} is missing" for name in missing]
    is_corrupt = schema.has_corrupt_row(connection)
    return ["messages, places, sessions or wills are not as they were stored"] if is_corrupt else []
