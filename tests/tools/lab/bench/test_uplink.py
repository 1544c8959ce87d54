"""The benchmarks of routes: what they count is what their next broker got."""

import os
import socket
import time
from pathlib import Path

import pytest

from cloud import read_manifest
from tools.lab.bench.batch.fleet import BME280
from tools.lab.bench.broker.processes import gateway
from tools.lab.bench.uplink.command import (
    LIVE_RATE,
    ROUTE,
    beside_bridge,
    drain,
    drain_live_first,
    one_refused,
    publish,
    waiting,
)
from tools.lab.bench.uplink.landed import landed
from tools.lab.bench.uplink.refusing import RefusingBroker
from wire.codec.packets import MQTT_5, Connect, Publish
from wire.identity import IDENTITY_PROPERTY, encode_identity
from wire.properties import USER_PROPERTY

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the benchmarks need two cores")


def encoded(number: int, identifier: int, dup: bool = False) -> bytes:
    identity = (IDENTITY_PROPERTY, encode_identity("edge", 7, number))
    publish = Publish("a/b", b"x" * 100, 1, False, dup, identifier, {USER_PROPERTY: [identity]})
    return publish.encode(MQTT_5)


def test_the_refusing_broker_refuses_one_message_each_time_that_it_comes_and_counts_all() -> None:
    with RefusingBroker(2) as broker, socket.create_connection(("127.0.0.1", broker.port), timeout=20) as route:
        answers = b""
        for packet in (Connect("route", False).encode(MQTT_5), encoded(1, 11), encoded(2, 12), encoded(3, 13)):
            route.sendall(packet)
            answers += route.recv(100)
        route.sendall(encoded(2, 12, dup=True))
        answers += route.recv(100)
        assert answers == bytes.fromhex("2003000000 4002000b 4003000c99 4002000d 4003000c99")
        assert (sorted(broker.came.values()), broker.connects) == ([1, 1, 2], 1)


def test_a_route_takes_every_message_to_the_next_broker_once(tmp_path: Path) -> None:
    """The broker refuses none of these messages."""
    with RefusingBroker(10_000) as broker, gateway(tmp_path, more=ROUTE.format(name="next", port=broker.port)) as ours:
        publish(ours, 3_000)
        while len(broker.came) < 3_000:  # pytest's timeout ends it otherwise
            time.sleep(0.01)
        assert set(broker.came.values()) == {1}


def test_what_becomes_of_one_refused_message_is_counted(tmp_path: Path) -> None:
    figures = {figure.name.rpartition(", ")[2]: figure for figure in one_refused(tmp_path, 500)}
    assert set(figures) == {"not sent", "sent again", "connected again"}
    assert all(figure.bar == 0 and figure.at_most for figure in figures.values())


def test_a_route_is_measured_beside_the_bridge(tmp_path: Path) -> None:
    rate, cpu = beside_bridge(tmp_path, 1, 0.8)
    assert rate.ours > 0 and rate.theirs and rate.bar == pytest.approx(1.2 * rate.theirs)
    assert cpu.ours > 0


def test_readings_in_batches_are_measured_until_they_are_landed(tmp_path: Path) -> None:
    rate, *processor_times = landed(tmp_path, BME280, 2_000, 500)
    assert rate.ours > 0
    assert [figure.name.split()[-4] for figure in processor_times] == ["publisher", "gateway", "mosquitto", "lander"]
    assert sum(read_manifest(path).rows for path in (tmp_path / "landing").glob("[!.]*.json")) == 2_000


def test_a_backlog_drains_while_messages_come(tmp_path: Path) -> None:
    assert drain(tmp_path, 5_000).ours > LIVE_RATE


def test_a_backlog_drains_behind_fresh_messages_and_these_are_timed(tmp_path: Path) -> None:
    rate, p99 = drain_live_first(tmp_path, 5_000)
    assert rate.ours > 0
    assert p99.ours > 0 and p99.bar == 1000 and p99.at_most


def test_messages_that_wait_on_three_routes_are_measured(tmp_path: Path) -> None:
    assert [figure.unit for figure in waiting(tmp_path, 2_000)] == ["MB", "s", "MB"]
