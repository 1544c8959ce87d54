"""Wills: published once when their clients are gone without a DISCONNECT, also over crashes."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.broker import Broker
from gateway.config.schema import LimitsConfig
from gateway.sessions import wills
from tests.gateway.connection.test_custody import commits_held_up
from tests.gateway.steps import session_of, started
from tests.gateway.store.support import disk_full, messages_in, stored
from tests.gateway.support import Client, connected, running, subscribed, tcp_port, until, user_property
from wire.codec.packets import Connack, Publish, Will
from wire.identity import RECEIVE
from wire.properties import CONTENT_TYPE, PAYLOAD_FORMAT_INDICATOR, WILL_DELAY_INTERVAL
from wire.reasons import ADMINISTRATIVE_ACTION


def will(delay_s: int = 0, **options: Any) -> Will:
    return Will("will/a", b"gone", properties={WILL_DELAY_INTERVAL: delay_s} if delay_s else {}, **options)


async def watching(port: int, options: int = 2) -> Client:
    watcher = await Client("watcher").connect(port)
    if not watcher.connack.session_present:
        await watcher.subscribe("will/#", options=options)
    return watcher


@contextlib.asynccontextmanager
async def watched(folder: Path, **settings: Any) -> AsyncIterator[tuple[Broker, Client]]:
    async with running(folder, **settings) as broker:
        yield broker, await watching(tcp_port(broker))


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_client_that_is_gone_without_a_word_has_its_will(tmp_path: Path, qos: int) -> None:
    async with running(tmp_path) as broker:
        watcher = await subscribed(broker, "watcher", "will/#", options=2, wishes=(RECEIVE,))
        last = Will("will/a", b"gone", qos, properties={CONTENT_TYPE: "text/plain"})
        (await connected(broker, "client", will=last)).cut()
        packet = await watcher.receive()
        assert (packet.topic, packet.payload, packet.qos, packet.retain) == ("will/a", b"gone", qos, False)
        assert packet.properties[CONTENT_TYPE] == "text/plain"
        assert bool(user_property(packet, "hf-id")) == (qos > 0)
    assert stored(tmp_path, "SELECT * FROM will") == []


async def test_a_will_that_claims_to_be_text_and_is_not_is_refused_like_such_a_publish(tmp_path: Path) -> None:
    async with watched(tmp_path) as (broker, watcher):
        last = Will("will/a", b"\xff", 1, properties={PAYLOAD_FORMAT_INDICATOR: 1})
        (await connected(broker, "client", will=last)).cut()
        await until(lambda: broker.counters.messages_dropped["rejected"], "refused")
        await watcher.expect_no_message()
    assert stored(tmp_path, "SELECT * FROM will") == []


async def test_one_that_says_goodbye_has_none(tmp_path: Path) -> None:
    async with watched(tmp_path) as (broker, watcher):
        client = await connected(broker, "client", will=will())
        await client.disconnect()
        await until(lambda: session_of(broker, "client").connection is None, "noticed")
        await watcher.expect_no_message()
        client = await connected(broker, "client", will=will())
        client.write(b"\xe0\x01\x04")  # DISCONNECT with will message
        assert (await watcher.receive()).payload == b"gone"


async def test_a_protocol_error_and_a_keep_alive_bring_it_about(tmp_path: Path) -> None:
    async with watched(tmp_path) as (broker, watcher):
        client = await connected(broker, "bad", will=will())
        client.write(b"\xf0\x00")
        assert (await watcher.receive()).payload == b"gone"
        await connected(broker, "silent", keep_alive_s=1, will=will())
        assert (await watcher.receive()).payload == b"gone"


async def test_a_retained_will_stays(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        (await connected(broker, "client", will=will(qos=1, retain=True))).cut()
        await until(lambda: broker.log.space.retained.topics, "published")
        watcher = await watching(tcp_port(broker))
        packet = await watcher.receive()
        assert (packet.payload, packet.retain) == (b"gone", True)


async def test_a_client_that_is_back_before_the_delay_has_none(tmp_path: Path) -> None:
    async with watched(tmp_path) as (broker, watcher):
        (await connected(broker, "client", will=will(1))).cut()
        await until(lambda: session_of(broker, "client").connection is None, "noticed")
        await connected(broker, "client")
        later = Will("will/marker", b"", properties={WILL_DELAY_INTERVAL: 1})
        (await connected(broker, "marker", will=later)).cut()
        assert (await watcher.receive()).topic == "will/marker"


async def test_a_client_that_is_not_let_in_is_not_back(tmp_path: Path) -> None:
    async with watched(tmp_path) as (broker, watcher):
        (await connected(broker, "client", will=will(1))).cut()
        await until(lambda: session_of(broker, "client").connection is None, "noticed")
        with contextlib.closing(sqlite3.connect(tmp_path / "messages.sqlite")) as other:
            other.execute("CREATE TRIGGER broken BEFORE INSERT ON will BEGIN SELECT RAISE(ABORT, 'broken'); END")
            again = Client("client", will=Will("will/a", b"of another life"))
            await again.open(tcp_port(broker))
            assert (await again.expect(Connack)).reason_code == 0x83
            other.execute("DROP TRIGGER broken")
        assert (await watcher.receive()).payload == b"gone"
        await watcher.expect_no_message()
    assert stored(tmp_path, "SELECT * FROM will") == []


@pytest.mark.parametrize(("delay_s", "heard"), [(0, [b"gone", b"of another life"]), (1000, [b"of another life"])])
async def test_a_client_whose_connection_ends_before_its_connack_was_back(
    tmp_path: Path, delay_s: int, heard: list[bytes]
) -> None:
    async with watched(tmp_path) as (broker, watcher):
        client = await connected(broker, "client", will=will(delay_s, qos=1))
        session = session_of(broker, "client")
        with commits_held_up(tmp_path):
            client.cut()
            await until(lambda: session.connection is None, "noticed")
            again = Client("client", will=Will("will/a", b"of another life", 1))
            await again.open(tcp_port(broker))
            await until(lambda: session.connection, "its CONNECT came")
            assert session.connection is not None
            session.connection.disconnect(ADMINISTRATIVE_ACTION)
        assert [(await watcher.receive()).payload for _ in heard] == heard
    async with watched(tmp_path) as (broker, watcher):
        await (await connected(broker, "publisher")).publish("will/marker", b"marker")
        assert (await watcher.receive()).payload == b"marker"
    assert stored(tmp_path, "SELECT * FROM will") == []


async def test_a_delay_passes(tmp_path: Path) -> None:
    async with watched(tmp_path) as (broker, watcher):
        (await connected(broker, "client", will=will(1))).cut()
        await until(lambda: session_of(broker, "client").connection is None, "noticed")
        await (await connected(broker, "publisher")).publish("will/marker", b"marker")
        assert (await watcher.receive()).payload == b"marker"
        assert (await watcher.receive()).payload == b"gone"


@pytest.mark.parametrize(
    ("delay_s", "clean_start", "is_published"), [(0, False, True), (60, False, False), (60, True, True)]
)
async def test_a_take_over(tmp_path: Path, delay_s: int, clean_start: bool, is_published: bool) -> None:
    async with watched(tmp_path) as (broker, watcher):
        await connected(broker, "client", will=will(delay_s))
        await connected(broker, "client", clean_start=clean_start)
        if is_published:
            assert (await watcher.receive()).payload == b"gone"
        await watcher.expect_no_message()


async def test_the_end_of_the_session_ends_the_delay(tmp_path: Path) -> None:
    async with watched(tmp_path) as (broker, watcher):
        for expiry_s in (0, 1):
            (await connected(broker, "client", session_expiry_s=expiry_s, will=will(60))).cut()
            assert (await watcher.receive()).payload == b"gone"


@pytest.mark.parametrize("expiry_s", [0, 1000])
async def test_a_kill_of_the_gateway_brings_it_about_once(tmp_path: Path, expiry_s: int) -> None:
    gateway = await started(tmp_path)
    watcher = await watching(gateway.port)
    await Client("client", session_expiry_s=expiry_s, will=will(qos=2)).connect(gateway.port)
    await gateway.restart()
    watcher = await watching(gateway.port)
    assert (await watcher.receive()).payload == b"gone"
    await gateway.restart()
    watcher = await watching(gateway.port)
    await watcher.expect_no_message()
    assert sum(message.topic == "will/a" for _, message in messages_in(tmp_path)) <= 1


async def test_a_delay_goes_on_over_a_restart_and_the_client_may_come_back(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await watching(tcp_port(broker))
        for name in ("back", "gone"):
            client = await Client(name, will=Will(f"will/{name}", b"", 1, properties={WILL_DELAY_INTERVAL: 1})).connect(
                tcp_port(broker)
            )
            client.cut()
    async with running(tmp_path) as broker:
        await connected(broker, "back")
        watcher = await watching(tcp_port(broker))
        assert (await watcher.receive()).topic == "will/gone"
        await watcher.expect_no_message()


async def test_over_mqtt_3_1_1(tmp_path: Path) -> None:
    async with watched(tmp_path) as (broker, watcher):
        client = await Client(
            "client", protocol_level=4, clean_start=True, session_expiry_s=0, will=Will("will/a", b"gone", 1)
        ).connect(tcp_port(broker))
        client.cut()
        packet = await watcher.expect(Publish)
        assert (packet.payload, packet.qos) == (b"gone", 1)


async def test_a_will_whose_commit_fails_is_published_once_the_disk_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wills, "RETRY_S", 0.05)
    async with watched(tmp_path) as (broker, watcher):
        client = await connected(broker, "client", will=will(qos=1))
        with disk_full():
            client.cut()
            await until(lambda: caplog.text.count("will not published yet") >= 2, "it failed twice")
        assert (await watcher.receive()).payload == b"gone"
        await (await connected(broker, "publisher")).publish("will/marker", b"marker")
        assert (await watcher.receive()).payload == b"marker"
    assert stored(tmp_path, "SELECT * FROM will") == []


async def test_a_will_that_is_tried_again_and_not_retained_leaves_one_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wills, "RETRY_S", 0.05)
    async with watched(tmp_path, limits=LimitsConfig(retained_messages=1)) as (broker, watcher):
        publisher = await connected(broker, "publisher")
        await publisher.publish("the only one", b"kept", retain=True)
        client = await connected(broker, "client", will=will(qos=1, retain=True))
        with disk_full():
            client.cut()
            await until(lambda: caplog.text.count("will not published yet") >= 2, "it failed twice")
        assert (await watcher.receive()).payload == b"gone"
        assert broker.counters.messages_dropped["rejected"] == 1
        assert broker.log.space.retained.topics == 1
    query = "SELECT reason, consumer, publisher, origin, first, last, messages FROM dropped"
    assert stored(tmp_path, query) == [("rejected", "retained", "client", "test-gateway", 2, 2, 1)]


@pytest.mark.parametrize("expiry_s", [0, 1000])
async def test_a_will_whose_commit_failed_is_not_published_when_its_client_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, expiry_s: int
) -> None:
    monkeypatch.setattr(wills, "RETRY_S", 0.5)
    async with watched(tmp_path) as (broker, watcher):
        client = await connected(broker, "client", will=will(qos=1), session_expiry_s=expiry_s)
        with disk_full():
            client.cut()
            await until(lambda: "will not published yet" in caplog.text, "it failed")
        client = await connected(broker, "client", session_expiry_s=expiry_s)
        await until(lambda: not stored(tmp_path, "SELECT * FROM will"), "it is forgotten")
        await (await connected(broker, "publisher")).publish("will/marker", b"marker")
        assert (await watcher.receive()).payload == b"marker"
    assert stored(tmp_path, "SELECT * FROM will") == []


async def test_a_will_that_was_published_at_its_sessions_end_leaves_the_next_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its delay is over with the session, also where it has to be published again."""
    monkeypatch.setattr(wills, "RETRY_S", 0.05)
    async with watched(tmp_path) as (broker, watcher):
        client = await connected(broker, "client", will=will(2, qos=1), session_expiry_s=0)
        with disk_full():
            client.cut()
            await until(lambda: "will not published yet" in caplog.text, "it failed")
        assert (await watcher.receive()).payload == b"gone"
        second = await connected(broker, "client", will=Will("will/a", b"second", 1), session_expiry_s=0)
        delay = {WILL_DELAY_INTERVAL: 2}
        (await connected(broker, "later", will=Will("will/a", b"later", 1, properties=delay))).cut()
        assert (await watcher.receive()).payload == b"later"
        second.cut()
        assert (await watcher.receive()).payload == b"second"
    assert stored(tmp_path, "SELECT * FROM will") == []
