"""Measures how much heap a mounted store takes. Runs on the real MicroPython VM.

usage: ram.py LIVE_MESSAGES APPENDS

Prints JSON: bytes of a word, bytes that an empty store of 64 sectors takes, bytes of LIVE_MESSAGES more
unacknowledged messages, and by how many bytes the heap has grown after APPENDS more, each acknowledged.
"""

import gc
import json
import sys

from flash_store.devices.ram import RamFlash
from flash_store.log import Log

SECTORS = 64
TOPIC, PAYLOAD = "telemetry/garage", b"p" * 112
WARM_UP = 4000  # more than twice around the ring


def allocated() -> int:
    gc.collect()
    taken: int = gc.mem_alloc()  # type: ignore[attr-defined]
    return taken


def turn(log: Log, count: int) -> int:
    """Returns the heap bytes in use after `count` messages were stored and acknowledged."""
    for _ in range(count):
        log.acknowledge(log.append(TOPIC, PAYLOAD))
        log.idle()
    return allocated()


def main(live: int, appends: int) -> None:
    device = RamFlash(4096, SECTORS)
    Log.format(device, 1)
    before = allocated()
    log = Log(device)
    empty = turn(log, WARM_UP)
    growth = turn(log, appends) - empty
    for _ in range(live):
        log.append(TOPIC, PAYLOAD)
    taken = allocated() - empty - growth
    word = 8 if sys.maxsize >> 32 else 4
    print(json.dumps({"word": word, "fixed": empty - before, "live": taken, "growth": growth}))


main(int(sys.argv[1]), int(sys.argv[2]))
