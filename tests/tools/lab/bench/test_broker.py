"""The broker's benchmarks: their generator counts correctly and accepts only acknowledgements."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from tests.gateway.store.support import messages_in
from tools.lab.bench.broker.client import PUBACK, Publisher, Refused, alike, end_of, pubacks
from tools.lab.bench.broker.packets import Publishes
from tools.lab.bench.broker.processes import bare_server, gateway, load, mosquitto
from tools.lab.testing.process import Server
from wire.codec.packets import MQTT_3_1_1, MQTT_5, Puback, Publish

needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the benchmarks need two cores")


@pytest.mark.parametrize("level", [MQTT_3_1_1, MQTT_5])
def test_packets_are_cut_out_of_the_ring_as_if_it_had_no_end(level: int) -> None:
    publishes = Publishes("a/b", 1, 60, level)
    assert bytes(publishes.cut(31_999, 2)) == bytes(publishes.cut(31_999, 1)) + bytes(publishes.cut(0, 1))
    acknowledged = b"".join(Puback(number).encode(level) for number in (32_000, 1, 2))
    assert publishes.answers(0x40, 31_999, 3) == acknowledged


def test_subscribers_acknowledge_each_packet_of_a_buffer() -> None:
    packets = [Publish("a", b"x" * size, 1, packet_identifier=7 + size).encode(MQTT_5) for size in (5, 5, 5, 200, 5)]
    data, at, answers = b"".join(packets) + packets[0][:4], 0, b""
    while (end := end_of(data, at)) <= len(data):
        count = alike(data, at, end)
        answers += pubacks(data, at, end - at, count)
        at += count * (end - at)
    assert answers == b"".join(Puback(7 + size).encode(MQTT_5) for size in (5, 5, 5, 200, 5))
    assert data[at:] == packets[0][:4]


def test_a_wrong_acknowledgement_ends_the_measurement() -> None:
    ours, theirs = socket.socketpair()
    publisher = Publisher.__new__(Publisher)
    publisher.socket = ours
    publisher._left, publisher._publishes, publisher._qos, publisher.acknowledged = b"", Publishes("a", 1, 50), 1, 0
    theirs.sendall(Puback(1).encode(MQTT_3_1_1) + Puback(3).encode(MQTT_3_1_1))
    with pytest.raises(Refused, match="2 packets of type 0x40 from number 0 expected"):
        publisher.on_readable()
    ours.close()
    theirs.close()
    assert PUBACK == 0x40


@needs_two_cores
def test_what_the_generator_counts_is_in_the_store(tmp_path: Path) -> None:
    with gateway(tmp_path) as ours:
        result = load(ours, seconds=0.3, window=50, publishers=2, is_kept=True)
        assert 0 < result["messages"] <= len(messages_in(tmp_path / "store"))
        assert load(ours, count=100, qos=2)["with_warm_up"] >= 100
        assert load(ours, count=100, subscribers=3, others=50)["with_warm_up"] >= 100
        assert load(ours, count=100, subscribers=1, next_port=ours.port)["with_warm_up"] >= 100
        paced = load(ours, seconds=0.5, rate=200, window=1000)
        assert paced["p50_ms"] <= paced["p99_ms"]
        assert ours.status("VmRSS") > 0
        assert ours.io("wchar") > 0


@needs_two_cores
@pytest.mark.parametrize("start", [mosquitto, lambda _folder: bare_server()])
def test_the_others_are_measured_by_the_same_generator(tmp_path: Path, start: object) -> None:
    assert shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:" + os.environ["PATH"])
    with start(tmp_path) as other:  # type: ignore[operator]
        assert isinstance(other, Server)
        assert load(other, seconds=0.2)["messages"] > 0
