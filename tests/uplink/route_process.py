"""A route in a process of its own, until it is killed: ``FOLDER PORT [batch]``."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from gateway.store import MessageLog
from uplink.config import RouteConfig
from uplink.route import Route


async def main(folder: Path, port: int, keys: dict[str, Any]) -> None:
    log = await MessageLog.open(folder, origin="gateway-1")
    config = RouteConfig("central", f"mqtt://127.0.0.1:{port}", inflight_window=50, backoff_shortest_ms=10, **keys)
    await Route(config, "gateway-1", log).run()


IN_BATCHES = {"framing": "batch", "batch_max_messages": 10, "batch_max_age_ms": 100}
asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), IN_BATCHES if sys.argv[3:] == ["batch"] else {}))
