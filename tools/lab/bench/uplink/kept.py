"""What it costs a gateway to keep messages until receipts, beside a route that does not."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from gateway.store import MessageLog, Part, PublishBatch
from tools.lab.bench.broker.processes import GENERATOR_CORE, Generator, gateway, mosquitto
from tools.lab.figure import Figure
from wire.codec.packets import MQTT_5, Publish
from wire.identity import IDENTITY_PROPERTY, encode_identity
from wire.properties import USER_PROPERTY

LEAST_TIMES_WITHOUT = 0.95
WALKED_LEAST = 50_000  # settled messages/s that leave the store
TURNS = 4
AT_ONCE = 50  # messages of a device in one piece, as a gateway reads them
DEVICES = 20
TOPIC = "site/device/readings"
CONSUMER = "route/bench"
ROUTE = '[[route]]\nname = "next"\nbroker = "mqtt://127.0.0.1:{port}"\nneeds_subscriber = false\nuntil = "{until}"\n'


def until_receipt(folder: Path, seconds: float, window: int) -> Iterator[Figure]:
    """Measures a route that keeps until receipts and one that does not, in turns. No receipt comes meanwhile."""
    with ExitStack() as stack:
        behind = {}
        for until in ("receipt", "acknowledgement"):
            following = stack.enter_context(mosquitto(folder / f"next-{until}", core=GENERATOR_CORE))
            more = ROUTE.format(port=following.port, until=until)
            behind[stack.enter_context(gateway(folder / until, more=more))] = following
        rates = dict.fromkeys(behind, 0.0)
        for broker, following in [*behind.items(), *reversed(behind.items())] * (TURNS // 2):
            task = {"qos": 1, "window": window, "seconds": seconds / TURNS, "next_port": following.port}
            rates[broker] += Generator(broker).load(broker, subscribers=1, **task)["rate"] / TURNS
        keeping, plain = rates.values()
    name = "QoS 1, by a route that keeps until a receipt, and by one that does not"
    yield Figure(name, "messages/s", keeping, plain, LEAST_TIMES_WITHOUT * plain)


def walk(folder: Path, count: int) -> Iterator[Figure]:
    """Measures how fast settled messages leave what is kept."""
    passed, took_s = asyncio.run(_walk(folder, count))
    name = f"{passed:,} settled messages of {DEVICES} devices leave the store"
    yield Figure(name, "/s", passed / took_s, None, WALKED_LEAST)


class _Settled:
    """Everything is acknowledged and settled."""

    def __init__(self, log: MessageLog) -> None:
        self._log = log

    @property
    def acknowledged(self) -> int:
        return self._log.head

    def hands_on(self, _topic: str, _part: Part) -> bool:
        return True

    def settled_up_to(self, _origin: str, _epoch: int, seq: int) -> int:
        return seq + 1_000_000


async def _walk(folder: Path, count: int) -> tuple[int, float]:
    log = await MessageLog.open(folder, origin="bench")
    try:
        kept = log.kept.begin(CONSUMER, log.head)
        kept.claims = _Settled(log)
        first = 1
        for _ in range(count // (AT_ONCE * DEVICES)):
            await log.submit([_piece(f"device-{number}", first) for number in range(DEVICES)])
            first += AT_ONCE
        started_s = time.perf_counter()
        passed = await kept.pass_settled(log.head)
        return passed, time.perf_counter() - started_s
    finally:
        await log.close()


def _piece(device: str, first: int) -> PublishBatch:
    """Messages of one device that came in one piece, with identities of its own."""
    packets = b"".join(
        Publish(
            TOPIC,
            b'[{"n":"temperature","v":21.5}]',
            1,
            packet_identifier=1,
            properties={USER_PROPERTY: [(IDENTITY_PROPERTY, encode_identity(device, 7, seq))]},
        ).encode(MQTT_5)
        for seq in range(first, first + AT_ONCE)
    )
    batch = PublishBatch(packets, {TOPIC: None}, AT_ONCE, MQTT_5, device, int(time.time() * 1000), "bench")
    batch.bring_identities = True
    return batch
