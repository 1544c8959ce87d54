"""A route in a process of its own, until it is killed: ``FOLDER PORT``."""

import asyncio
import sys
from pathlib import Path

from gateway.store import MessageLog
from uplink.config import RouteConfig
from uplink.route import Route


async def main(folder: Path, port: int) -> None:
    log = await MessageLog.open(folder, origin="gateway-1")
    config = RouteConfig("central", f"mqtt://127.0.0.1:{port}", inflight_window=50, backoff_shortest_ms=10)
    await Route(config, "gateway-1", log).run()


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
