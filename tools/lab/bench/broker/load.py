"""The load of the broker's benchmarks: ``python -m tools.lab.bench.broker.load TASK``, TASK as JSON, result as JSON.

It runs on the core that the broker does not run on.
"""

import json
import math
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

from tools.lab.bench.broker.client import Client, Counter, Poller, Publisher, Subscriber, SubscriberOnce
from tools.lab.bench.broker.packets import Publishes
from tools.lab.testing.process import process_cpu_s
from wire.codec.packets import MQTT_3_1_1

WARM_UP_S = 0.5
AWAY, AWAY_S = "bench-away", 3600
FILTERS_OF_A_CLIENT = 1000
SHARES = {"p50_ms": 0.5, "p99_ms": 0.99}
LAG_MAX = 4000  # messages that a publisher may be ahead of the slowest subscriber

idle: list[Client] = []


@dataclass
class Task:
    """A load, for some ``seconds`` or until ``count`` messages have arrived.

    ``rate`` is in messages/s, 0 for as fast as the window allows. ``is_kept``: the broker keeps the messages for an
    offline subscriber. ``others``: the number of wildcard subscriptions, with those of the subscribers. ``next_port``:
    the subscribers are clients of the broker at this port, at QoS 0. ``from_device``: the messages have the properties
    of a device's messages. ``broker`` is the broker's process.
    """

    port: int
    broker: int
    publishers: int = 1
    window: int = 200
    qos: int = 1
    size: int = 100
    seconds: float = 2.0
    subscribers: int = 0
    rate: float = 0
    level: int = MQTT_3_1_1
    is_kept: bool = False
    others: int = 0
    next_port: int = 0
    count: int = 0
    from_device: bool = False


def run(task: Task) -> dict[str, Any]:
    """Warms up, then measures."""
    if task.is_kept:
        keep(task.port, task.level)
    publishers = [_publisher(task, number) for number in range(task.publishers)]
    kind = Counter if task.next_port else Subscriber if task.qos == 1 else SubscriberOnce
    at = task.next_port or task.port
    subscribers = [kind(at, f"bench-to-{number}", task.level) for number in range(task.subscribers)]
    for subscriber in subscribers:
        subscriber.subscribe("bench/#", qos=0 if task.next_port else task.qos)
    _subscribe_to_nothing(task)
    poller = Poller([*publishers, *subscribers])
    if task.rate:
        return _paced(task, poller, publishers[0], subscribers)
    return _at_full_speed(task, poller, publishers, subscribers)


def _publisher(task: Task, number: int) -> Publisher:
    client_id = f"bench-{os.getpid()}-{number}"
    device = client_id if task.from_device else ""
    publishes = Publishes(f"bench/plant-{number}/reading", task.qos, task.size, task.level, device)
    return Publisher(task.port, client_id, publishes, task.qos, task.window, task.level)


def keep(port: int, level: int = MQTT_3_1_1) -> None:
    """Makes a new offline session, for which the broker keeps all messages."""
    Client(port, AWAY).close()
    away = Client(port, AWAY, level, AWAY_S)
    away.subscribe("bench/#")
    away.close()


def _subscribe_to_nothing(task: Task) -> None:
    """Makes the other wildcard subscriptions, for clients that stay connected."""
    left = max(0, task.others - task.subscribers)
    for first in range(0, left, FILTERS_OF_A_CLIENT):
        client = Client(task.port, f"bench-other-{first}", task.level)
        idle.append(client)
        client.subscribe(*(f"other/{i}/+/#" for i in range(first, min(left, first + FILTERS_OF_A_CLIENT))))


def _warm_up_s(task: Task) -> float:
    """Warms up, no longer than the measurement takes."""
    return min(WARM_UP_S, task.seconds) if not task.count else WARM_UP_S


def _at_full_speed(
    task: Task, poller: Poller, publishers: list[Publisher], subscribers: list[Subscriber]
) -> dict[str, Any]:
    def done() -> int:
        if subscribers:
            return min(subscriber.received for subscriber in subscribers)
        return sum(publisher.acknowledged for publisher in publishers)

    if subscribers:
        for publisher in publishers:
            publisher.may_send = lambda: LAG_MAX - (sum(one.sent for one in publishers) - done())

    def fill() -> None:
        for publisher in publishers:
            publisher.fill()

    fill()
    poller.run(_warm_up_s(task), fill)
    before, cpu, broker_before = done(), time.process_time(), process_cpu_s(task.broker)
    is_done = (lambda: done() >= task.count) if task.count else (lambda: False)
    seconds = poller.run(math.inf if task.count else task.seconds, fill, is_done)
    cpu, broker_s = time.process_time() - cpu, process_cpu_s(task.broker) - broker_before
    count, rate = done() - before, (done() - before) / seconds
    result = {"messages": count, "with_warm_up": done(), "rate": rate, "generator_cpu": cpu / seconds}
    return {**result, "broker_us": 1e6 * broker_s / max(count, 1)}


def _paced(task: Task, poller: Poller, publisher: Publisher, subscribers: list[Subscriber]) -> dict[str, Any]:
    """Sends at a fixed rate; a latency is the time from the moment a message was due to its acknowledgement, or to its
    arrival at the subscriber of the next broker.
    """
    latencies: list[float] = []

    def arrived() -> int:
        return subscribers[0].received if task.next_port else publisher.acknowledged

    started = time.perf_counter()
    noted = 0

    def pace() -> None:
        nonlocal noted
        now = time.perf_counter()
        while noted < arrived():
            noted += 1
            latencies.append(now - (started + noted / task.rate))
        due = int((now - started) * task.rate) - publisher.sent
        due = min(due, task.window - (publisher.sent - publisher.acknowledged))
        if due > 0:
            publisher.send_some(due)

    cpu = time.process_time()
    seconds = poller.run(task.seconds + _warm_up_s(task), pace, wait_s=0.0002)
    cpu = time.process_time() - cpu
    latencies = sorted(latencies[int(_warm_up_s(task) * task.rate) :])
    at = {name: latencies[int(share * len(latencies))] * 1000 if latencies else None for name, share in SHARES.items()}
    counts = {"messages": noted, "acknowledged": publisher.acknowledged}
    return {**counts, "rate": noted / seconds, "generator_cpu": cpu / seconds, **at}


if __name__ == "__main__":
    print(json.dumps(run(Task(**json.loads(sys.argv[1])))))
