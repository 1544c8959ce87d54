"""A backlog is carried to another gateway in a file: nothing is lost, and nothing is applied twice."""

from pathlib import Path

import pytest

from gateway.message import Message
from gateway.store import MessageLog
from tests.gateway.store.support import disk_full, stored
from tests.support.scripted_broker import scripted_broker, silent
from tests.uplink.support import append, opened, route_config, until
from tests.uplink.test_reload import numbers, status, steered
from uplink.carry import BadBacklogFile, ExportFailed, Imports, ImportStopped, export
from uplink.carry.backlog_file import MAGIC, UNFINISHED, BacklogWriter, Header
from uplink.routes import NoSuchRoute
from wire.properties import CONTENT_TYPE, MESSAGE_EXPIRY_INTERVAL

ABSENT = 1  # a port at which no broker listens


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few messages fill several batches."""
    monkeypatch.setattr(export, "BATCH_MESSAGES", 2)


def imports(log: MessageLog, may_take: bool = True) -> Imports:
    return Imports(log.folder, log, lambda message: [message], lambda _: may_take)


async def exported(folder: Path, count: int = 5) -> Path:
    """A file with a backlog of messages with the numbers from 1 on."""
    path = folder / "backlog"
    async with opened(folder / "from") as log, steered(log, route_config(ABSENT)) as routes:
        await append(log, range(1, count + 1))
        assert await routes.export("central", path) == count
    return path


async def everything(log: MessageLog) -> list[Message]:
    found: list[tuple[int, Message]] = []
    while more := await log.read(found[-1][0] if found else 0, 1000):
        found += more
    return [message for _, message in found]


async def test_a_backlog_arrives_elsewhere_as_it_was_and_no_longer_waits(tmp_path: Path) -> None:
    path = tmp_path / "backlog"
    async with scripted_broker(puback=lambda p: 0 if int(p.payload) == 1 else None) as broker:
        async with (
            opened(tmp_path / "from") as log,
            steered(log, route_config(broker.port, inflight_window=2, filters=("telemetry/#",))) as routes,
        ):
            await append(log, range(1, 2))
            await append(log, range(2, 3), "other")
            await append(log, range(3, 7))
            await until(lambda: numbers(broker) == [1, 3, 4])
            broker.puback = lambda _: 0
            assert await routes.export("central", path) == 4
            assert status(routes).backlog_messages == 0
            await append(log, range(7, 8))
            await until(lambda: numbers(broker)[-1] == 7)
        assert numbers(broker) == [1, 3, 4, 7]
        async with opened(tmp_path / "from") as log, steered(log, route_config(broker.port)) as routes:
            await append(log, range(8, 9))
            await until(lambda: numbers(broker)[-1] == 8)
        assert numbers(broker) == [1, 3, 4, 7, 8], "a restart brings none back"
    async with opened(tmp_path / "to") as log, steered(log, route_config(ABSENT)):
        assert await imports(log).import_file(path) == 4
        assert [(m.topic, m.payload, m.origin, m.epoch, m.seq) for m in await everything(log)] == [
            ("telemetry/a", b"%d" % seq, "a", 7, seq) for seq in (3, 4, 5, 6)
        ]
        assert await imports(log).import_file(path) == 0
        assert len(await everything(log)) == 4


async def test_an_export_follows_no_symbolic_link(tmp_path: Path) -> None:
    """Another user of the folder may have put links there, under the file's name or under a hidden one."""
    precious, folder = tmp_path / "precious", tmp_path / "folder"
    precious.write_text("precious")
    folder.mkdir()
    for name in (".backlog", f".backlog{UNFINISHED}"):
        (folder / name).symlink_to(precious)
    (folder / "dangling").symlink_to(tmp_path / "nothing")
    async with opened(tmp_path / "from") as log, steered(log, route_config(ABSENT)) as routes:
        await append(log, range(1, 3))
        for name in ("backlog", "dangling"):
            with pytest.raises(ExportFailed, match="exists"):
                await routes.export("central", folder / name)
        assert status(routes).backlog_messages == 2
        assert await routes.export("central", folder / "other") == 2
    assert precious.read_text() == "precious"
    assert not (tmp_path / "nothing").exists()


def test_a_file_that_another_program_makes_during_an_export_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "backlog"
    writer = BacklogWriter(path, Header("1", "gateway", "route", 1))
    path.write_text("precious")
    with pytest.raises(FileExistsError):
        writer.finish()
    writer.discard()
    assert path.read_text() == "precious"
    assert [one.name for one in tmp_path.iterdir()] == ["backlog"]


async def test_an_export_to_a_full_disk_leaves_no_file_and_everything_waiting(tmp_path: Path) -> None:
    path = tmp_path / "stick/backlog"
    path.parent.mkdir()
    async with opened(tmp_path / "from") as log, steered(log, route_config(ABSENT)) as routes:
        await append(log, range(1, 6))
        with disk_full(60), pytest.raises(ExportFailed, match=r"backlog: File too large$"):
            await routes.export("central", path)
        assert list(path.parent.iterdir()) == []
        assert status(routes).backlog_messages == 5
        assert await routes.export("central", path) == 5


def test_an_export_removes_the_remains_of_killed_ones_and_nothing_else(tmp_path: Path) -> None:
    header = Header("1", "gateway", "route", 1)
    running = BacklogWriter(tmp_path / "running", header)
    (tmp_path / f".killed{UNFINISHED}").write_bytes(MAGIC + b"H")
    (tmp_path / f".early{UNFINISHED}").write_bytes(b"")
    (tmp_path / f".foreign{UNFINISHED}").write_text("precious")
    assert BacklogWriter(tmp_path / "backlog", header).finish() == 0
    names = {one.name for one in tmp_path.iterdir()}
    assert names == {f".running{UNFINISHED}", f".foreign{UNFINISHED}", "backlog"}
    assert running.finish() == 0


@pytest.mark.parametrize("order", ["strict", "live_first"])
async def test_a_backlog_has_the_messages_of_batches_that_were_in_flight(tmp_path: Path, order: str) -> None:
    path = tmp_path / "backlog"
    async with (
        scripted_broker(puback=silent) as broker,
        opened(tmp_path / "from") as log,
        steered(log, route_config(broker.port, framing="batch", batch_max_messages=3, order=order)) as routes,
    ):
        await append(log, range(1, 6))
        await until(lambda: any(broker.publishes))
        assert await routes.export("central", path) == 5
        assert status(routes).backlog_messages == 0
    async with opened(tmp_path / "to") as log, steered(log, route_config(ABSENT)):
        assert await imports(log).import_file(path) == 5
        assert [message.seq for message in await everything(log)] == [1, 2, 3, 4, 5]


async def test_properties_qos_and_time_travel_and_expired_messages_leave_a_range(tmp_path: Path) -> None:
    path, properties = tmp_path / "backlog", {CONTENT_TYPE: "text/plain", MESSAGE_EXPIRY_INTERVAL: 1_000_000}
    sent = Message("a", b"1", 2, True, properties, "o", 7, 1, 1234, "garage", expires_ms=1 << 50)
    async with opened(tmp_path / "from") as log, steered(log, route_config(ABSENT)) as routes:
        await log.submit([sent])
        await log.submit([Message("a", b"2", origin="o", epoch=7, seq=2, expires_ms=1)])
        assert await routes.export("central", path) == 1
    ranges = stored(tmp_path / "from/store", "SELECT reason, consumer, first, last FROM dropped")
    assert ranges == [("expired", "route/central", 2, 2)]
    async with opened(tmp_path / "to") as log, steered(log, route_config(ABSENT)):
        await imports(log).import_file(path)
        (found,) = await everything(log)
        assert found.properties == properties
        for field in ("topic", "payload", "qos", "retain", "origin", "epoch", "seq", "received_ms", "received_by"):
            assert getattr(found, field) == getattr(sent, field)
        assert found.expires_ms > 0


async def test_a_file_that_is_cut_or_changed_anywhere_is_refused_and_stores_nothing(tmp_path: Path) -> None:
    path = await exported(tmp_path)
    whole = path.read_bytes()
    async with opened(tmp_path / "to") as log, steered(log, route_config(ABSENT)):
        for size in range(len(whole)):
            path.write_bytes(whole[:size])
            with pytest.raises(BadBacklogFile, match=r"not complete|no backlog file"):
                await imports(log).import_file(path)
        for at in range(0, len(whole), 7):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
            with pytest.raises(BadBacklogFile):
                await imports(log).import_file(path)
        path.write_bytes(whole + b"\n")
        with pytest.raises(BadBacklogFile, match="bytes come behind its end"):
            await imports(log).import_file(path)
        assert log.head == 0
        path.write_bytes(whole)
        assert await imports(log).import_file(path) == 5


async def test_an_import_that_was_interrupted_goes_on_behind_the_last_batch(tmp_path: Path) -> None:
    path = await exported(tmp_path, 7)
    async with opened(tmp_path / "to") as log, steered(log, route_config(ABSENT)):
        rooms = iter([True, True, False])
        full = Imports(log.folder, log, lambda message: [message], lambda _: next(rooms))
        with pytest.raises(ImportStopped, match="4 messages are imported"):
            await full.import_file(path)
    async with opened(tmp_path / "to") as log, steered(log, route_config(ABSENT)):
        assert await imports(log).import_file(path) == 3
        assert [message.seq for message in await everything(log)] == [1, 2, 3, 4, 5, 6, 7]


async def test_an_export_that_fails_leaves_no_file_and_everything_waits(tmp_path: Path) -> None:
    async with scripted_broker(puback=lambda _: None) as broker, opened(tmp_path) as log:
        async with steered(log, route_config(broker.port, inflight_window=2)) as routes:
            await append(log, range(1, 6))
            await until(lambda: numbers(broker) == [1, 2])
            with pytest.raises(ExportFailed, match="No such file or directory"):
                await routes.export("central", tmp_path / "absent/backlog")
            (tmp_path / "taken").write_text("mine")
            with pytest.raises(ExportFailed, match="File exists"):
                await routes.export("central", tmp_path / "taken")
            with pytest.raises(NoSuchRoute):
                await routes.export("down", tmp_path / "backlog")
            broker.puback = lambda _: 0
            await until(lambda: status(routes).backlog_messages == 0)
        assert sorted(set(numbers(broker))) == [1, 2, 3, 4, 5]
        assert (tmp_path / "taken").read_text() == "mine"
        assert sorted(one.name for one in tmp_path.iterdir()) == ["store", "taken"]


async def test_a_disk_that_fills_up_during_an_export_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "backlog"
    async with scripted_broker() as broker, opened(tmp_path) as log, steered(log, route_config(ABSENT)) as routes:
        await append(log, range(1, 6))
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(ExportFailed, match="No space left"):
                await routes.export("central", path)
        assert status(routes).backlog_messages == 5
        routes.reload([route_config(broker.port)])
        await until(lambda: numbers(broker) == [1, 2, 3, 4, 5])
    assert not list(tmp_path.glob("*backlog*"))


async def test_what_is_kept_for_a_route_that_is_no_longer_configured_can_be_exported(tmp_path: Path) -> None:
    async with opened(tmp_path) as log, steered(log, route_config(ABSENT)) as routes:
        await append(log, range(1, 4))
        routes.reload([])
        await until(lambda: status(routes).problem == "it is no longer configured")
        assert await routes.export("central", tmp_path / "backlog") == 3
        assert await routes.forget("central") == 0
