"""The store's folder under a running gateway: moved, deleted, or wanted by a second one."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.errors import StoreError
from gateway.store import MessageLog
from tests.gateway.store.support import messages_in
from tests.gateway.support import connected, running
from wire.codec.packets import Disconnect, Puback, Suback


def move(store: Path) -> None:
    store.rename(store.with_name("elsewhere"))


def delete(store: Path) -> None:
    shutil.rmtree(store)


def replace_by_a_copy(store: Path) -> None:
    shutil.copytree(store, store.with_name("copy"))
    move(store)
    store.with_name("copy").rename(store)


def delete_messages(store: Path) -> None:
    (store / "messages.sqlite").unlink()


def delete_wal(store: Path) -> None:
    (store / "messages.sqlite-wal").unlink()


@pytest.mark.parametrize("lose", [move, delete, replace_by_a_copy, delete_messages, delete_wal])
async def test_nothing_is_acknowledged_where_no_start_would_find_it(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    store = tmp_path / "store"
    async with running(store) as broker:
        publisher = await connected(broker, "publisher")
        subscriber = await connected(broker, "subscriber", session_expiry_s=60)
        await publisher.publish("a", b"before")
        assert broker.overview.problems() == []
        lose(store)
        assert "was moved or deleted" in broker.overview.problems()[0]
        publisher.send("a", b"behind", qos=1)
        assert not isinstance(await publisher.event(), Puback)
        subscriber.protocol.subscribe([("a", 1)])
        subscriber.flush()
        assert not isinstance(await subscriber.event(), Suback)
        broker.overview.state()  # what /metrics shows


async def test_a_folder_that_comes_back_is_used_again(tmp_path: Path) -> None:
    store, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    async with running(store) as broker:
        client = await connected(broker, "client")
        await client.publish("a", b"before")
        store.rename(elsewhere)
        client.send("a", b"meanwhile", qos=1)
        await client.expect(Disconnect)
        elsewhere.rename(store)
        client = await connected(broker, "client")
        await client.publish("a", b"after")
        assert broker.overview.problems() == []
        assert [message.payload for _, message in messages_in(store)][-1] == b"after"


async def test_a_second_gateway_does_not_start_on_a_store_that_is_used(tmp_path: Path) -> None:
    """Not even where the store has another path now, or the lock's file is gone."""
    store, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    async with running(store):
        (store / "lock").unlink()
        with pytest.raises(StoreError, match="another process uses it"):
            await MessageLog.open(store, origin="second")
        store.rename(elsewhere)
        with pytest.raises(StoreError, match="another process uses it"):
            await MessageLog.open(elsewhere, origin="second")
    log = await MessageLog.open(elsewhere, origin="second")
    await log.close()
