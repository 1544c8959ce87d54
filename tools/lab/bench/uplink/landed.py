"""Readings in column batches on their whole way: publisher → gateway → mosquitto → lander, until the last is landed."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from tools.lab.bench.batch.fleet import BME280, sent_by_fleet
from tools.lab.bench.broker.client import Poller, Publisher
from tools.lab.bench.broker.packets import IDENTIFIERS, Publishes
from tools.lab.bench.broker.processes import GENERATOR_CORE, BenchUnavailable, gateway, lander, mosquitto
from tools.lab.bench.figure import Figure
from wire.codec.packets import MQTT_3_1_1, Publish

READINGS = len(BME280)  # in a message
LEAST = 200_000  # readings/s
DEVICES = 10
SEED = 1
DEADLINE_S = 300.0
TOPIC = "holdfast/batch/bench/next"
ROUTE = """\
[[route]]
name = "next"
broker = "mqtt://127.0.0.1:{port}"
framing = "batch"
"""


class FleetPublishes(Publishes):
    """PUBLISHes of QoS 1 with the readings of simulated devices, one for each packet identifier, all of them twice."""

    def __init__(self) -> None:
        super().__init__("unused", 1, 40, MQTT_3_1_1)
        sent = sent_by_fleet(IDENTIFIERS, DEVICES, BME280, "JSON", SEED)
        packets = [
            Publish(one.topic, one.payload, 1, packet_identifier=number).encode(MQTT_3_1_1)
            for number, one in enumerate(sent, 1)
        ] * 2
        self._starts = [0]
        for packet in packets:
            self._starts.append(self._starts[-1] + len(packet))
        self._all = memoryview(b"".join(packets))

    def cut(self, first: int, count: int) -> memoryview:
        start = first % IDENTIFIERS
        return self._all[self._starts[start] : self._starts[start + count]]


def landed(folder: Path, messages: int, window: int) -> Figure:
    """Measures how fast so many messages are landed that come at once. Raises BenchUnavailable."""
    landing = folder / "landing"
    with (
        mosquitto(folder, core=GENERATOR_CORE) as behind,
        lander(folder, behind, TOPIC, landing),
        gateway(folder, more=ROUTE.format(port=behind.port)) as ours,
    ):
        publisher = Publisher(ours.port, "bench-fleet", FleetPublishes(), 1, window, MQTT_3_1_1)
        publisher.may_send = lambda: messages - publisher.sent
        poller = Poller([publisher])
        started = time.perf_counter()
        publisher.fill()
        poller.run(DEADLINE_S, publisher.fill, lambda: publisher.acknowledged >= messages)
        publisher.close()
        _wait_until(lambda: _rows(landing) >= messages)
        took_s = time.perf_counter() - started
    name = "readings in batches: publisher, gateway, mosquitto, landed"
    return Figure(name, "readings/s", READINGS * messages / took_s, None, LEAST)


def _rows(landing: Path) -> int:
    return sum(json.loads(path.read_bytes())["rows"] for path in landing.glob("[!.]*.json"))


def _wait_until(holds: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + DEADLINE_S
    while not holds():
        if time.monotonic() > ends_s:
            raise BenchUnavailable(f"not all messages were landed in {DEADLINE_S:g} s")
        time.sleep(0.02)
