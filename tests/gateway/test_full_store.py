"""A store that is full of what eviction cannot free."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from gateway.store import MESSAGES, disk
from gateway.store.tables import drops
from tests.gateway.steps import away, code_of, limited, publish_numbers, received
from tests.gateway.store.support import stored
from tests.gateway.support import Client, connected, until
from wire.codec.packets import Puback
from wire.reasons import QUOTA_EXCEEDED


def fill(folder: Path, size: int) -> None:
    """Gives the store ``size`` bytes of ranges of what was dropped, which are never removed."""
    with contextlib.closing(sqlite3.connect(folder / MESSAGES)) as store:
        rows = [("rejected", "gateway", 250 * "p", "o", 1, number, number, 1, 1, 1) for number in range(size // 600)]
        store.executemany(drops.INSERT, rows)
        store.commit()


async def test_what_no_eviction_can_free_has_no_message_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also after a restart: of `max_bytes` half stays for messages, whatever else the file holds."""
    async with limited(tmp_path, max_bytes=1_000_000) as broker:
        await away(broker, "a")
    fill(tmp_path, 1_500_000)
    for first in (0, 20):
        async with limited(tmp_path, max_bytes=1_000_000) as broker:
            assert broker.log.space.used_bytes > 1_000_000
            publisher = await connected(broker, "publisher", session_expiry_s=0)
            for number in range(first, first + 20):
                await publisher.publish("a", b"%d" % number + b" " * 1000)
            assert await code_of(Client("another"), broker) == QUOTA_EXCEEDED
            publisher.send("r", b"1", retain=True)
            assert (await publisher.expect(Puback)).reason_code == QUOTA_EXCEEDED
            assert "take up more than half of store.max_bytes" in broker.overview.problems()[0]
    async with limited(tmp_path, max_bytes=1_000_000) as broker:
        # This store refuses retained messages.
        assert await received(broker, 40, retained=False) == list(range(40))
        publisher = await connected(broker, "publisher", session_expiry_s=0)
        await away(broker, "a")
        for number in range(300):
            await publisher.publish("a", b"%d" % number + b" " * 10_000)
        await until(lambda: broker.log.space.used_bytes <= broker.log.space.bytes_beside + 500_000, "dropped")
        assert broker.log.space.needed_count > 20, "half of the limit is left for messages"
    evicted = stored(tmp_path, "SELECT sum(messages) FROM dropped WHERE reason = 'evicted'")
    assert evicted[0][0] > 0
    assert sum("more than half of store.max_bytes" in record.getMessage() for record in caplog.records) == 3


async def test_a_store_that_drops_messages_says_when_that_begins_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with limited(tmp_path, max_messages=10, when_full="discard_old") as broker:
        publisher = await connected(broker, "publisher")
        await publish_numbers(publisher, 20)
        assert "message store: full" not in caplog.text  # no consumer misses them
        await away(broker, "a")
        await publish_numbers(publisher, 20)
        full = "message store: full, the oldest messages are dropped"
        await until(lambda: broker.overview.problems() == [full], "it is said")
        await publish_numbers(publisher, 20)
        assert caplog.text.count("message store: full, the oldest messages are dropped") == 1
        monkeypatch.setattr("gateway.limits.DROPPING_ENDS_S", 0.05)
        await publish_numbers(publisher, 20)
        told = "acknowledged messages were dropped since 2"
        await until(lambda: "full no more" in caplog.text and told in broker.overview.problems()[0], "it is over")
    async with limited(tmp_path, max_messages=100) as broker:
        (problem,) = broker.overview.problems()
        assert "`holdfast gateway seen` ends this line" in problem, "a restart does not forget it"
        assert (broker.overview.see_drops(), broker.overview.see_drops()) == (1, 0)
        assert broker.overview.problems() == []
    async with limited(tmp_path, max_messages=100) as broker:
        assert broker.overview.problems() == []


def test_the_words_about_a_full_disk_say_what_fills_it(tmp_path: Path) -> None:
    (tmp_path / "messages.sqlite").write_bytes(bytes(3_000_000))
    said = disk.describe_disk(tmp_path)
    assert said.startswith("the disk is full, ") and said.endswith("the store 3 MB"), said


@pytest.mark.parametrize(
    ("when_full", "note"),
    [("reject_incoming", "new messages are refused"), ("flow_control", "publishers and neighbours wait")],
)
async def test_a_store_that_takes_no_message_says_so_until_it_has_room(
    tmp_path: Path, when_full: str, note: str
) -> None:
    async with limited(tmp_path, max_messages=10, when_full=when_full) as broker:
        await away(broker, "a")
        publisher = await connected(broker, "publisher")
        await publish_numbers(publisher, 9)
        assert broker.overview.notes() == []
        await publish_numbers(publisher, 1)
        assert broker.overview.notes() == [f"message store: full, {note}"]
        await received(broker, 10)
        await until(lambda: not broker.overview.notes(), "it has room")
