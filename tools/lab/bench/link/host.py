"""The gateway's end of the serial link as a process: PATH BAUD BYTES_TO_SEND.

Runs the gateway's own listener. Says on standard output `up`, `SECONDS TOTAL`, by the monotonic
clock, for whatever arrives, and `flowing` once that is a stream.
"""

import asyncio
import sys
import time

from gateway.config.schema import SerialConfig
from gateway.listeners.serial import SerialListener
from gateway.port import Port
from tools.lab.bench.link.stream import Check, piece

FLOWING_BYTES = 2560


async def run(path: str, baud: int, to_send: int) -> None:
    tasks = set()

    async def carry(port: Port) -> None:
        print("up", flush=True)
        port.send(piece(0, to_send))
        check = Check()
        is_flowing = False
        while data := await port.receive():
            check.take(data)
            print(time.monotonic(), check.total, flush=True)
            if not is_flowing and check.total >= FLOWING_BYTES:
                is_flowing = True
                print("flowing", flush=True)

    listener = SerialListener(
        SerialConfig(path, baud=baud),
        anonymous=True,
        connect=lambda port: tasks.add(asyncio.ensure_future(carry(port))),
    )
    await listener.open()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
