"""A store in a file on the real VM, as an outage of any length leaves it and the broker's return finds it.

usage: backlog.py WHAT FLASH_FILE SECTORS SIZES; WHAT is `start`, `fill` or `drain`. Prints how many messages there are.
"""

import gc
import sys

if hasattr(gc, "threshold"):
    gc.threshold(4096)  # as the firmware does, before it imports what stays: see `device.memory`

import flash_store.mount  # noqa: F401  its source is compiled while the heap is empty: else fragments decide
from flash_store.devices.file import FileFlash
from flash_store.errors import HeapFull, StoreFull
from flash_store.log import Log

TOPIC = "telemetry/garage"
WINDOW = 8


def main(what: str, path: str, sectors: int, sizes: list) -> None:
    log = Log(FileFlash(path, 4096, sectors))
    if what == "fill":
        fill(log, sizes)
    if what == "drain":
        drain(log)
    print(len(log))
    if what == "start" and not len(log):
        log.append(TOPIC, b"one more", 2)


def fill(log: Log, sizes: list) -> None:
    try:
        while True:
            log.append(TOPIC, bytes(sizes[log.last_id % len(sizes)] - len(TOPIC)), 2)
    except HeapFull:
        raise
    except StoreFull:
        pass


def drain(log: Log) -> None:
    """A window of messages at a time, each with its PUBREC."""
    expected = log.ids(1)[0]
    while len(log):
        sent = []
        for message in log.messages():
            assert message[0] == expected, f"{message[0]} came, expected {expected}"
            expected += 1
            sent.append(message[0])
            if len(sent) == WINDOW:
                break
        for message_id in sent:
            log.note_pubrec(message_id)
            log.acknowledge(message_id)
        log.flush()
        log.idle()
        gc.collect()


main(sys.argv[1], sys.argv[2], int(sys.argv[3]), [int(size) for size in sys.argv[4].split(",")])
