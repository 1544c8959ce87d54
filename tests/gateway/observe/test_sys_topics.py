"""The gateway's own topics below $SYS."""

import importlib.metadata
from pathlib import Path
from typing import NoReturn

import pytest

from gateway.counters import Counters, RouteState, State
from gateway.message import Message
from gateway.observe.sys_topics import SysTopics
from tests.gateway.store.support import stored
from tests.gateway.support import connected, running, subscribed, until
from wire.codec.packets import RETAIN_AS_PUBLISHED, Puback, Will

MOSQUITTO = """
bytes/received bytes/sent clients/active clients/connected clients/disconnected clients/expired clients/inactive
clients/maximum clients/total load/bytes/received load/bytes/sent load/connections load/messages/received
load/messages/sent load/publish/dropped load/publish/received load/publish/sent load/sockets messages/received
messages/sent messages/stored publish/bytes/received publish/bytes/sent publish/messages/dropped
publish/messages/received publish/messages/sent shared_subscriptions/count store/messages/bytes store/messages/count
subscriptions/count uptime version
"""


def topics(tree: SysTopics, now_s: float) -> dict[str, str]:
    return {topic.removeprefix("$SYS/broker/"): payload.decode() for topic, payload in tree.messages(now_s)}


def test_the_names_are_mosquittos() -> None:
    """As `mosquitto_sub -t '$SYS/#' -v` lists them; its heap is not ours to tell."""
    names = {name.removesuffix("/1min").removesuffix("/15min").removesuffix("/5min") for name in topics(tree(), 0.0)}
    assert names == {*MOSQUITTO.split(), "retained messages/count"}


def tree(counters: Counters | None = None, state: State | None = None) -> SysTopics:
    return SysTopics("1.2.3", counters or Counters(), lambda: state or State(), 0.0)


def test_the_values_are_those_of_the_gateway() -> None:
    counters = Counters(packets_received=9, payload_bytes_sent=70)
    counters.messages_received[:] = [1, 2, 3]
    counters.messages_dropped["evicted"] = 4
    shown = topics(tree(counters, State(connections=2, sessions=5, stored_bytes=4096)), 61.5)
    assert shown["version"] == "holdfast 1.2.3"
    assert shown["uptime"] == "61 seconds"
    assert shown["clients/connected"] == shown["clients/active"] == "2"
    assert shown["clients/disconnected"] == shown["clients/inactive"] == "3"
    assert shown["clients/total"] == "5"
    assert shown["messages/received"] == "9"
    assert shown["publish/messages/received"] == "6"
    assert shown["publish/messages/dropped"] == "4"
    assert shown["publish/bytes/sent"] == "70"
    assert shown["store/messages/bytes"] == "4096"


def test_a_route_is_a_bridge_to_mosquittos_users() -> None:
    state = State(routes=[RouteState("central", True)])
    assert topics(tree(state=state), 0.0)["connection/central/state"] == "1"


def test_only_what_has_changed_is_said_again() -> None:
    counters = Counters()
    said = tree(counters)
    topics(said, 0.0)
    assert topics(said, 0.5) == {}
    counters.packets_sent += 1
    assert topics(said, 0.5) == {"messages/sent": "1"}


def test_a_load_is_what_a_minute_brings_on_average() -> None:
    counters = Counters()
    said = tree(counters)
    shown: dict[str, str] = {}
    for round_number in range(1, 241):
        counters.packets_received += 20
        shown |= topics(said, round_number * 10.0)
    assert float(shown["load/messages/received/1min"]) == pytest.approx(120, rel=0.01)
    assert float(shown["load/messages/received/5min"]) == pytest.approx(120, rel=0.01)
    assert 90 < float(shown["load/messages/received/15min"]) < 120
    for round_number in range(241, 260):
        shown |= topics(said, round_number * 10.0)
    assert float(shown["load/messages/received/1min"]) < 6
    assert float(shown["load/messages/received/5min"]) > 50


async def test_the_gateway_tells_how_it_is_below_sys(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await subscribed(broker, "client", "#")
        await client.expect_no_message()
        await client.subscribe("$SYS/broker/#", options=1 | RETAIN_AS_PUBLISHED)
        packets = [await client.receive() for _ in range(20)]
        topics = {packet.topic: packet for packet in packets}
        assert topics["$SYS/broker/version"].payload.startswith(b"holdfast ")
        assert all(packet.retain and packet.qos == 0 for packet in packets)
    assert stored(tmp_path, "SELECT * FROM retained") == []  # it wears no medium


async def test_a_bridge_does_not_speak_for_a_route_of_its_name(tmp_path: Path) -> None:
    state = "$SYS/broker/connection/central/state"
    async with running(tmp_path) as broker:
        broker.services.publishing.announce(Message(state, b"1", 0, retain=True))
        will = Will(state, b"0", 1, True)
        bridge = await connected(broker, "central", will=will)
        bridge.send(state, b"0", qos=1, retain=True)
        assert (await bridge.expect(Puback)).reason_code == 0x87
        bridge.cut()
        await until(lambda: broker.counters.messages_dropped["rejected"] == 2, "its will is not published")
        client = await subscribed(broker, "client", state)
        assert (await client.receive()).payload == b"1"


async def test_a_checkout_that_is_not_installed_tells_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed(name: str) -> NoReturn:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", not_installed)
    async with running(tmp_path) as broker:
        client = await subscribed(broker, "client", "$SYS/broker/version")
        assert (await client.receive()).payload == b"holdfast unknown"
