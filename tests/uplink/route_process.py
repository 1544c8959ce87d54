"""A route in a process of its own, until it is killed: ``FOLDER PORT [batch | KEYS] [evicts | LIFE [QOS]]``.

KEYS are further keys of the route as JSON. With LIFE it stores twenty messages of QoS 2, or of QOS, from the number
100,000 + 20 LIFE on.
"""

import asyncio
import sys
from pathlib import Path

import msgspec

from gateway.message import Message
from gateway.store import MessageLog
from uplink.config.route import RouteConfig
from uplink.route import Route

IN_BATCHES = {"framing": "batch", "batch_max_messages": 10, "batch_max_age_ms": 100}
FRESH = 20


async def main(folder: Path, port: int, keys: str = "{}", wish: str = "", qos: str = "2") -> None:
    log = await MessageLog.open(folder, origin="gateway-1")
    usual: dict[str, object] = {"broker": f"mqtt://127.0.0.1:{port}", "inflight_window": 50, "backoff_shortest_ms": 10}
    usual |= {"statement_interval_s": 0}  # as in tests.uplink.support
    further = IN_BATCHES if keys == "batch" else msgspec.json.decode(keys)
    route = Route(msgspec.convert({"name": "central", **usual, **further}, RouteConfig), "gateway-1", log)
    running = asyncio.create_task(route.run())
    if wish == "evicts":
        while len(route.queue.lanes.live.flight.positions()) < 10:
            await asyncio.sleep(0.01)
        await log.eviction.evict(4, 0)
        print("evicted", flush=True)
    elif wish:
        for number in range(FRESH):
            await log.submit([Message("a", b"%d" % (100_000 + FRESH * int(wish) + number), int(qos))])
    await running


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
