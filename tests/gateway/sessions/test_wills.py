"""Wills: published when their clients are gone without a word, once, also over crashes."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gateway import wills
from gateway.config import LimitsConfig
from tests.gateway.store.support import disk_full, messages_in, stored
from tests.gateway.support import Client, GatewayProcess, running, tcp_port, until, user_property
from tests.gateway.test_custody import commits_held_up
from wire.identity import RECEIVE
from wire.packets import Connack, Publish, Will
from wire.properties import CONTENT_TYPE, WILL_DELAY_INTERVAL
from wire.reasons import ADMINISTRATIVE_ACTION


def will(delay_s: int = 0, **options: Any) -> Will:
    return Will("will/a", b"gone", properties={WILL_DELAY_INTERVAL: delay_s} if delay_s else {}, **options)


async def watching(port: int, options: int = 2) -> Client:
    watcher = await Client("watcher").connect(port)
    if not watcher.connack.session_present:
        await watcher.subscribe("will/#", options=options)
    return watcher


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_client_that_is_gone_without_a_word_has_its_will(tmp_path: Path, qos: int) -> None:
    async with running(tmp_path) as broker:
        watcher = await Client("watcher", wishes=(RECEIVE,)).connect(tcp_port(broker))
        await watcher.subscribe("will/#", options=2)
        last = Will("will/a", b"gone", qos, properties={CONTENT_TYPE: "text/plain"})
        client = await Client("client", will=last).connect(tcp_port(broker))
        client.cut()
        packet = await watcher.receive()
        assert (packet.topic, packet.payload, packet.qos, packet.retain) == ("will/a", b"gone", qos, False)
        assert packet.properties[CONTENT_TYPE] == "text/plain"
        assert bool(user_property(packet, "hf-id")) == (qos > 0)
    assert stored(tmp_path, "SELECT * FROM will") == []


async def test_one_that_says_goodbye_has_none(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        watcher = await watching(tcp_port(broker))
        client = await Client("client", will=will()).connect(tcp_port(broker))
        await client.disconnect()
        assert await watcher.silent()
        client = await Client("client", will=will()).connect(tcp_port(broker))
        client.write(b"\xe0\x01\x04")  # DISCONNECT with will message
        assert (await watcher.receive()).payload == b"gone"


async def test_a_protocol_error_and_a_keep_alive_bring_it_about(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        watcher = await watching(tcp_port(broker))
        client = await Client("bad", will=will()).connect(tcp_port(broker))
        client.write(b"\xf0\x00")
        assert (await watcher.receive()).payload == b"gone"
        await Client("silent", keep_alive_s=1, will=will()).connect(tcp_port(broker))
        assert (await watcher.receive()).payload == b"gone"


async def test_a_retained_will_stays(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await Client("client", will=will(qos=1, retain=True)).connect(tcp_port(broker))
        client.cut()
        await until(lambda: broker.log.retained_count, "published")
        watcher = await watching(tcp_port(broker))
        packet = await watcher.receive()
        assert (packet.payload, packet.retain) == (b"gone", True)


async def test_a_client_that_is_back_before_the_delay_has_none(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        watcher = await watching(tcp_port(broker))
        client = await Client("client", will=will(1)).connect(tcp_port(broker))
        client.cut()
        await until(lambda: broker.sessions.get("client").connection is None, "noticed")  # type: ignore[union-attr]
        client = await Client("client").connect(tcp_port(broker))
        assert await watcher.silent(1.2)


async def test_a_client_that_is_not_let_in_is_not_back(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        watcher = await watching(tcp_port(broker))
        client = await Client("client", will=will(1)).connect(tcp_port(broker))
        client.cut()
        await until(lambda: broker.sessions.get("client").connection is None, "noticed")  # type: ignore[union-attr]
        with contextlib.closing(sqlite3.connect(tmp_path / "messages.sqlite")) as other:
            other.execute("CREATE TRIGGER broken BEFORE INSERT ON will BEGIN SELECT RAISE(ABORT, 'broken'); END")
            again = Client("client", will=Will("will/a", b"of another life"))
            await again.open(tcp_port(broker))
            assert (await again.expect(Connack)).reason_code == 0x83
            other.execute("DROP TRIGGER broken")
        assert (await watcher.receive()).payload == b"gone"
        assert await watcher.silent()
    assert stored(tmp_path, "SELECT * FROM will") == []


@pytest.mark.parametrize(("delay_s", "heard"), [(0, [b"gone", b"of another life"]), (1000, [b"of another life"])])
async def test_a_client_whose_connection_ends_before_its_connack_was_back(
    tmp_path: Path, delay_s: int, heard: list[bytes]
) -> None:
    async with running(tmp_path) as broker:
        watcher = await watching(tcp_port(broker))
        client = await Client("client", will=will(delay_s, qos=1)).connect(tcp_port(broker))
        session = broker.sessions.get("client")
        assert session is not None
        with commits_held_up(tmp_path):
            client.cut()
            await until(lambda: session.connection is None, "noticed")
            again = Client("client", will=Will("will/a", b"of another life", 1))
            await again.open(tcp_port(broker))
            await until(lambda: session.connection, "its CONNECT came")
            assert session.connection is not None
            session.connection.disconnect(ADMINISTRATIVE_ACTION)
        assert [(await watcher.receive()).payload for _ in heard] == heard
    async with running(tmp_path) as broker:
        watcher = await watching(tcp_port(broker))
        await (await Client("publisher").connect(tcp_port(broker))).publish("will/marker", b"marker")
        assert (await watcher.receive()).payload == b"marker"
    assert stored(tmp_path, "SELECT * FROM will") == []


async def test_a_delay_passes(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        watcher = await watching(tcp_port(broker))
        client = await Client("client", will=will(1)).connect(tcp_port(broker))
        client.cut()
        assert await watcher.silent(0.5)
        assert (await watcher.receive()).payload == b"gone"


@pytest.mark.parametrize(
    ("delay_s", "clean_start", "is_published"), [(0, False, True), (60, False, False), (60, True, True)]
)
async def test_a_take_over(tmp_path: Path, delay_s: int, clean_start: bool, is_published: bool) -> None:
    async with running(tmp_path) as broker:
        watcher = await watching(tcp_port(broker))
        await Client("client", will=will(delay_s)).connect(tcp_port(broker))
        await Client("client", clean_start=clean_start).connect(tcp_port(broker))
        if is_published:
            assert (await watcher.receive()).payload == b"gone"
        assert await watcher.silent()


async def test_the_end_of_the_session_ends_the_delay(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        watcher = await watching(tcp_port(broker))
        for expiry_s in (0, 1):
            client = await Client("client", session_expiry_s=expiry_s, will=will(60)).connect(tcp_port(broker))
            client.cut()
            assert (await watcher.receive()).payload == b"gone"


@pytest.mark.parametrize("expiry_s", [0, 1000])
async def test_a_kill_of_the_gateway_brings_it_about_once(tmp_path: Path, expiry_s: int) -> None:
    gateway = GatewayProcess(tmp_path)
    await gateway.start()
    watcher = await watching(gateway.port)
    await Client("client", session_expiry_s=expiry_s, will=will(qos=2)).connect(gateway.port)
    await gateway.kill()
    await gateway.start()
    watcher = await watching(gateway.port)
    assert (await watcher.receive()).payload == b"gone"
    await gateway.kill()
    await gateway.start()
    watcher = await watching(gateway.port)
    assert await watcher.silent()
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
        await Client("back").connect(tcp_port(broker))
        watcher = await watching(tcp_port(broker))
        assert (await watcher.receive()).topic == "will/gone"
        assert await watcher.silent()


async def test_over_mqtt_3_1_1(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        watcher = await watching(tcp_port(broker))
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
    async with running(tmp_path) as broker:
        watcher = await watching(tcp_port(broker))
        client = await Client("client", will=will(qos=1)).connect(tcp_port(broker))
        with disk_full():
            client.cut()
            await until(lambda: caplog.text.count("will not published yet") >= 2, "it failed twice")
        assert (await watcher.receive()).payload == b"gone"
        await (await Client("publisher").connect(tcp_port(broker))).publish("will/marker", b"marker")
        assert (await watcher.receive()).payload == b"marker"
    assert stored(tmp_path, "SELECT * FROM will") == []


async def test_a_will_that_is_tried_again_and_not_retained_leaves_one_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wills, "RETRY_S", 0.05)
    async with running(tmp_path, limits=LimitsConfig(retained_messages=1)) as broker:
        watcher = await watching(tcp_port(broker))
        publisher = await Client("publisher").connect(tcp_port(broker))
        await publisher.publish("the only one", b"kept", retain=True)
        client = await Client("client", will=will(qos=1, retain=True)).connect(tcp_port(broker))
        with disk_full():
            client.cut()
            await until(lambda: caplog.text.count("will not published yet") >= 2, "it failed twice")
        assert (await watcher.receive()).payload == b"gone"
        assert broker.counters.messages_dropped["rejected"] == 1
        assert broker.log.retained_count == 1
    query = "SELECT reason, consumer, publisher, origin, first, last, messages FROM dropped"
    assert stored(tmp_path, query) == [("rejected", "retained", "client", "test-gateway", 2, 2, 1)]


@pytest.mark.parametrize("expiry_s", [0, 1000])
async def test_a_will_whose_commit_failed_is_not_published_when_its_client_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, expiry_s: int
) -> None:
    monkeypatch.setattr(wills, "RETRY_S", 0.5)
    async with running(tmp_path) as broker:
        watcher = await watching(tcp_port(broker))
        client = await Client("client", will=will(qos=1), session_expiry_s=expiry_s).connect(tcp_port(broker))
        with disk_full():
            client.cut()
            await until(lambda: "will not published yet" in caplog.text, "it failed")
        client = await Client("client", session_expiry_s=expiry_s).connect(tcp_port(broker))
        await until(lambda: not stored(tmp_path, "SELECT * FROM will"), "it is forgotten")
        await (await Client("publisher").connect(tcp_port(broker))).publish("will/marker", b"marker")
        assert (await watcher.receive()).payload == b"marker"
    assert stored(tmp_path, "SELECT * FROM will") == []


async def test_a_will_that_was_published_at_its_sessions_end_leaves_the_next_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its delay is over with the session, also where it has to be published again."""
    monkeypatch.setattr(wills, "RETRY_S", 0.05)
    async with running(tmp_path) as broker:
        watcher = await watching(tcp_port(broker))
        client = await Client("client", will=will(2, qos=1), session_expiry_s=0).connect(tcp_port(broker))
        with disk_full():
            client.cut()
            await until(lambda: "will not published yet" in caplog.text, "it failed")
        assert (await watcher.receive()).payload == b"gone"
        second = await Client("client", will=Will("will/a", b"second", 1), session_expiry_s=0).connect(tcp_port(broker))
        delay = {WILL_DELAY_INTERVAL: 2}
        later = await Client("later", will=Will("will/a", b"later", 1, properties=delay)).connect(tcp_port(broker))
        later.cut()
        assert (await watcher.receive()).payload == b"later"
        second.cut()
        assert (await watcher.receive()).payload == b"second"
    assert stored(tmp_path, "SELECT * FROM will") == []
