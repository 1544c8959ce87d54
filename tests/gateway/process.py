"""A gateway in a process of its own, until SIGTERM.

``process.py FOLDER`` prints ``listens PORT PROCESS_ID`` once clients can connect, and ``ends`` when it is told to end.
HOLDFAST_TEST_STREAMS names streams that the gateway has.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import uvloop

from gateway.config.streams import StreamConfig
from tests.gateway.serving import running, tcp_port


async def main(folder: Path) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    streams = [StreamConfig(name) for name in os.environ.get("HOLDFAST_TEST_STREAMS", "").split(",") if name]
    async with running(folder, stream=streams) as broker:
        print("listens", tcp_port(broker), os.getpid(), flush=True)
        await stopped.wait()
        print("ends", flush=True)


uvloop.run(main(Path(sys.argv[1])))
