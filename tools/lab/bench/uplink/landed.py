"""Readings in column batches on their whole way: publisher → gateway → mosquitto → lander, until the last is landed."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tools.lab.bench.batch.fleet import Sensor, sent_by_fleet
from tools.lab.bench.broker.client import Poller, Publisher
from tools.lab.bench.broker.packets import IDENTIFIERS, Publishes
from tools.lab.bench.broker.processes import GENERATOR_CORE, BenchUnavailable, gateway, lander, mosquitto, on_core
from tools.lab.figure import Figure
from wire.codec.packets import MQTT_3_1_1, Publish

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
statement_interval_s = 0
"""


class FleetPublishes(Publishes):
    """PUBLISHes of QoS 1 with the readings of simulated devices, one for each packet identifier, all of them twice."""

    def __init__(self, sensor: Sensor) -> None:
        super().__init__("unused", 1, 40, MQTT_3_1_1)
        sent = sent_by_fleet(IDENTIFIERS, DEVICES, sensor, "JSON", SEED)
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


def landed(folder: Path, sensor: Sensor, messages: int, window: int) -> Iterator[Figure]:
    """Measures how fast ``messages`` messages are landed that come at once. Raises BenchUnavailable.

    Each message has one reading for each quantity of the sensor.
    """
    landing = folder / "landing"
    publishes = FleetPublishes(sensor)
    with (
        mosquitto(folder, core=GENERATOR_CORE) as behind,
        lander(folder, behind, TOPIC, landing) as lands,
        gateway(folder, more=ROUTE.format(port=behind.port)) as ours,
        on_core(GENERATOR_CORE),
    ):
        programs = {"gateway": ours, "mosquitto": behind, "lander": lands}
        before_s = {name: program.cpu_s() for name, program in programs.items()}
        publisher = Publisher(ours.port, "bench-fleet", publishes, 1, window, MQTT_3_1_1)
        publisher.may_send = lambda: messages - publisher.sent
        poller = Poller([publisher])
        started, begun_s = time.perf_counter(), time.process_time()
        publisher.fill()
        poller.run(DEADLINE_S, publisher.fill, lambda: publisher.acknowledged >= messages)
        publisher.close()
        publisher_s = time.process_time() - begun_s
        _wait_until(lambda: _rows(landing) >= messages)
        took_s = time.perf_counter() - started
        used_s = {name: program.cpu_s() - before_s[name] for name, program in programs.items()}
    what = f"readings, {len(sensor)} in a message"
    name = f"{what}, in batches: publisher, gateway, mosquitto, landed"
    yield Figure(name, "readings/s", len(sensor) * messages / took_s, None, LEAST)
    for program, cpu_s in {"publisher": publisher_s, **used_s}.items():
        yield Figure(f"{what}: processor time of the {program} for a message", "us", 1e6 * cpu_s / messages)


def _rows(landing: Path) -> int:
    return sum(json.loads(path.read_bytes())["rows"] for path in landing.glob("[!.]*.json"))


def _wait_until(holds: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + DEADLINE_S
    while not holds():
        if time.monotonic() > ends_s:
            raise BenchUnavailable(f"not all messages were landed in {DEADLINE_S:g} s")
        time.sleep(0.02)
