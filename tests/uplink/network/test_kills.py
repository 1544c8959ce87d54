"""Three gateways in processes of their own, of which one is killed while messages flow."""

import asyncio
import itertools
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.gateway.store.support import stored
from tools.lab.testing.client import Client
from tools.lab.testing.gateway import Gateway
from tools.lab.torture.network.site import new_gateway
from tools.lab.torture.network.subscriber import PROBE, Subscriber
from tools.lab.torture.publisher import TOPIC, Publisher

EACH = 100
KILLS = {"active-active": 3, "active-passive": 1}
ROUTE = """\
[[route]]
name = "to-{name}"
broker = "mqtt://127.0.0.1:{port}"
backoff_shortest_ms = 20
backoff_longest_ms = 200
[route.neighbour]
name = "{name}"
mode = "{mode}"
"""
NEIGHBOUR = '[[neighbour]]\nname = "{name}"\nmode = "{mode}"\n'
# Each gateway, each way to dial and each mode at least once; the other eight are run with the long proofs.
USUAL = {
    ("m", "upstream", "active-active"),
    ("b", "downstream", "active-active"),
    ("a", "upstream", "active-passive"),
    ("m", "downstream", "active-passive"),
}
RANGES = "SELECT reason, first, last, messages FROM dropped WHERE origin = '{}'"


def chain(folder: Path, mode: str, dialling: str) -> list[Gateway]:
    """Gateways a, m and b: a dials m, and m dials b, or the other way round."""
    a, m, b = gateways = [new_gateway(folder, number) for number in range(3)]
    tables = dict.fromkeys(gateways, "")
    for one, other in ((a, m), (m, b)) if dialling == "upstream" else ((m, a), (b, m)):
        tables[one] += ROUTE.format(name=other.name, port=other.port, mode=mode)
        tables[other] = NEIGHBOUR.format(name=one.name, mode=mode) + tables[other]
    for gateway in gateways:
        gateway.configure(tables[gateway])
    return gateways


async def has_come(port: int, subscribers: list[Subscriber], payload: bytes) -> None:
    """Returns when a message has come from a gateway to each subscriber; in active-passive it may take several."""
    client = await Client("probe", session_expiry_s=0).connect(port)
    while not all(payload in one.probes for one in subscribers):
        await client.publish(f"{TOPIC}/probe", payload)
        await asyncio.sleep(0.05)
    await client.disconnect()


@pytest.mark.parametrize(
    ("killed", "dialling", "mode"),
    [
        pytest.param(*case, marks=[] if case in USUAL else [pytest.mark.long])
        for case in itertools.product("amb", ("upstream", "downstream"), KILLS)
    ],
)
async def test_a_kill_loses_nothing_doubles_nothing_and_keeps_the_order(
    tmp_path: Path, killed: str, dialling: str, mode: str
) -> None:
    gateways = a, m, b = chain(tmp_path, mode, dialling)
    victim = {"a": a, "m": m, "b": b}[killed]
    publishers = [Publisher(f"p{qos}", a.port, qos, KILLS[mode] * EACH) for qos in (1, 2)]
    filters = [f"{TOPIC}/#"]
    subscribers = [Subscriber(f"s{qos}", 2, b.port, filters, qos, is_durable=True) for qos in (1, 2)]
    async with AsyncExitStack() as stack:
        for gateway in gateways:
            stack.push_async_callback(gateway.down)
            await gateway.up()
        tasks = [asyncio.create_task(one.run()) for one in subscribers]
        tasks += [asyncio.create_task(one.run()) for one in publishers]
        stack.callback(lambda: [task.cancel() for task in tasks])
        await asyncio.gather(*(one.is_subscribed.wait() for one in subscribers))
        await has_come(a.port, subscribers, PROBE + b"first")
        for number in range(KILLS[mode]):
            for publisher in publishers:
                publisher.allow((number + 1) * EACH)
            await asyncio.gather(*(one.reached(number * EACH + EACH // 4) for one in publishers))
            victim.kill()
            await victim.up()
            await asyncio.gather(*(one.reached((number + 1) * EACH) for one in publishers))
        await asyncio.gather(*tasks[len(subscribers) :])
        await has_come(a.port, subscribers, PROBE + b"last")
        for one in subscribers:
            one.end()
        await asyncio.gather(*tasks)
    for publisher in publishers:
        query = RANGES.format(publisher.name)
        missing_ranges = [row for gateway in gateways for row in stored(tmp_path / gateway.name / "store", query)]
        assert {row[0] for row in missing_ranges} <= ({"unrouted"} if mode == "active-passive" else set())
        for one in subscribers:
            came = [message for message in one.came if message.topic == publisher.topic]
            counts = Counter(message.number for message in came)
            missing = set(range(1, publisher.count + 1)) - counts.keys()
            unrouted = sum(row[3] for row in missing_ranges)
            assert len(missing) <= unrouted <= len(missing) + len(publisher.repeated)  # the gateway has these twice
            assert all(any(first <= number <= last for _, first, last, _ in missing_ranges) for number in missing)
            again = {number for number, count in counts.items() if count > 1}
            assert not again or (killed == "b" and min(publisher.qos, one.qos) == 1)
            first_ones = list(dict.fromkeys(message.number for message in came))
            assert first_ones == sorted(first_ones)
