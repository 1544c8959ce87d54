"""A store of an earlier release goes on in this one, whatever cuts its upgrade short.

``stores/0.1.0.tar.xz`` is the store (version 7) of a gateway of the first builds of 0.1.0 that was killed: a session
with messages of QoS 2 and 1, a retained message, and a route with five messages of QoS 2 on their way, two confirmed by
PUBREC.
"""

import contextlib
import random
import shutil
import sqlite3
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from gateway.errors import StoreError
from gateway.message import Message
from gateway.store import Cursor
from gateway.store.repair import check_store
from gateway.store.sqlite import marks
from gateway.store.sqlite.folder import MESSAGES
from gateway.store.sqlite.rows import is_whole, open_at_rest, sealed
from gateway.store.tables import routes, schema
from gateway.store.tables.upgrade.releases import prepare
from tests.gateway.store.support import opened, stored, take_all
from tests.house.repository import ROOT
from tests.support.scripted_broker import scripted_broker
from tests.uplink.support import route_config, running, until
from tools.lab.strace import StraceUnavailable
from tools.lab.torture.store.disk import Disk
from tools.lab.torture.store.trace import Said, Write, read, trace
from uplink.connect.notes import RouteNotes

RELEASE = Path(__file__).parent / "stores/0.1.0.tar.xz"
CUTS = 25  # of some 120 places
START = """
import asyncio, sys
from pathlib import Path
from gateway.store import MessageLog

async def start():
    await (await MessageLog.open(Path(sys.argv[1]), origin="gw")).close()

asyncio.run(start())
"""
VERSION_8 = """
CREATE TABLE refused (consumer TEXT NOT NULL, position INTEGER NOT NULL, reason TEXT NOT NULL,
    refused_ms INTEGER NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (consumer, position)) STRICT;
CREATE TABLE route (consumer TEXT PRIMARY KEY, epoch INTEGER NOT NULL, filters BLOB NOT NULL,
    crc INTEGER NOT NULL) STRICT;
PRAGMA user_version = 8;
"""
FILTERS = msgspec.msgpack.encode(("plant/#",))
TABLES = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name"


def store_of_release(folder: Path) -> Path:
    """The store, in a file that is no copy."""
    with tarfile.open(RELEASE) as archive:
        archive.extractall(folder, filter="data")
    with contextlib.closing(sqlite3.connect(folder / "store" / MESSAGES, isolation_level=None)) as connection:
        marks.save(connection, replace(marks.load(connection), file_id=0, wal_bytes=0))
    return folder / "store"


def rows_of(folder: Path, table: str) -> list[tuple[object, ...]]:
    return stored(folder, f"SELECT * FROM {table} ORDER BY rowid")


def tables_of_a_new_store() -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        schema.make(new)
        return new.execute(TABLES).fetchall()


async def is_upgraded(folder: Path) -> None:
    """All that the release had stored is there."""
    async with opened(folder) as log:
        assert set(log.consumers.names()) >= {"route/central", "session/dash"}
        assert [(flow.packet_identifier, flow.position, flow.state) for flow in log.found.flows] == [
            (65535, 3, 1),
            (65534, 4, 1),
            (65533, 5, 0),
            (65532, 6, 0),
            (65531, 7, 0),
        ]
        session = log.found.sessions["dash"]
        assert sorted(session.subscriptions) == ["other", "plant/+"]
        cursor = Cursor(log, "session/dash", ["plant/+", "other"])
        assert [(one.payload, one.qos) for one in await take_all(cursor)] == [
            *((b"%d" % number, 2) for number in range(1, 6)),
            (b"6", 1),
        ]
        assert log.space.retained.topics == 1
        (position,) = await log.submit([Message("plant/a", b"7", 1)])
        assert position == 9
    assert stored(folder, TABLES) == tables_of_a_new_store()
    assert stored(folder, "PRAGMA user_version") == [(schema.SCHEMA_VERSION,)]


async def test_a_store_of_the_first_release_goes_on_with_all_that_is_in_it(tmp_path: Path) -> None:
    folder = store_of_release(tmp_path)
    check_store(folder)
    assert stored(folder, "PRAGMA user_version") == [(7,)], "a check changes nothing"
    await is_upgraded(folder)


def test_a_release_on_trial_leaves_a_store_of_the_former_format_alone(tmp_path: Path) -> None:
    folder = store_of_release(tmp_path)
    with pytest.raises(StoreError, match=r"of version 7, and a start would bring it to version 9, .* is on trial"):
        check_store(folder, keeps_format=True)
    assert stored(folder, "PRAGMA user_version") == [(7,)]
    new = tmp_path / "new"
    new.mkdir()
    check_store(new, keeps_format=True)


async def test_a_power_cut_at_any_write_of_an_upgrade_loses_nothing(tmp_path: Path, seed: int) -> None:
    folder, record, dice = store_of_release(tmp_path), tmp_path / "record", random.Random(seed)
    disk = Disk(folder)
    try:
        trace([sys.executable, "-c", START, str(folder)], record, ROOT)
    except StraceUnavailable as error:
        pytest.skip(str(error))
    events = [event for event in read(record, folder) if not isinstance(event, Said)]
    # Without what is rebuilt at a start, and the zeros that give the WAL its length.
    places = [number for number, event in enumerate(events) if not isinstance(event, Write) or _matters(event)]
    cuts, versions = {places[0], places[-1], *dice.sample(places, CUTS)}, set()
    for number, event in enumerate(events):
        disk.take(event)
        if number not in cuts:
            continue
        (left := tmp_path / str(number)).mkdir()
        disk.cut(dice, left)
        with open_at_rest(left / MESSAGES) as connection:
            versions.add(schema.version_of(connection))
        await is_upgraded(left)
        shutil.rmtree(left)
    assert versions == {7, schema.SCHEMA_VERSION}, "cuts before and behind the commit"


def _matters(write: Write) -> bool:
    return not write.path.endswith("-shm") and any(write.data)


async def test_corrupt_rows_of_a_store_between_the_releases_stay_corrupt_and_whole_ones_whole(tmp_path: Path) -> None:
    """Version 8 had tables of routes and refused messages without the columns that came later."""
    folder = store_of_release(tmp_path)
    with contextlib.closing(sqlite3.connect(folder / MESSAGES, isolation_level=None)) as connection:
        connection.executescript(VERSION_8)
        rows = [sealed(("route/central", position, "0x99", 5)) for position in (3, 4)]
        connection.executemany(
            "INSERT INTO refused VALUES (?, ?, ?, ?, ?)", [rows[0], (*rows[1][:-1], rows[1][-1] ^ 1)]
        )
        connection.execute("INSERT INTO route VALUES (?, ?, ?, ?)", sealed(("route/central", 77, FILTERS)))
        prepare(connection)
        assert [is_whole(row) for row in connection.execute("SELECT * FROM refused ORDER BY position")] == [True, False]
        row = routes.load(connection)["route/central"]
        assert (row.epoch, row.filters, row.numberings, row.backfill) == (77, ("plant/#",), {}, ())
        assert {*connection.execute(TABLES).fetchall()} <= {*tables_of_a_new_store()}


async def test_messages_of_qos_2_on_their_way_before_an_upgrade_go_on_with_their_identifiers(tmp_path: Path) -> None:
    folder = store_of_release(tmp_path)
    async with scripted_broker(session_present=True) as broker, opened(folder) as log:
        notes = RouteNotes(folder, "central")
        notes.note.server = f"mqtt://127.0.0.1:{broker.port}"
        await notes.save()
        async with running(log, route_config(broker.port, filters=("plant/#",)), gateway_name="garage"):
            await until(lambda: not stored(folder, "SELECT 1 FROM flow WHERE state < 2"))
        assert not broker.connects[0].clean_start
        again = [(one.packet_identifier, one.payload, one.dup) for one in broker.publishes[0]]
        # The store of that release has no mark of the session: what the broker was told to release is in doubt too.
        assert again == [(65535 - number, b"%d" % (number + 1), True) for number in range(5)]
        assert log.routes.filters_of("route/central") == ("plant/#",)
