"""A gateway that reports what it holds: ``python -m tools.lab.torture.broker.holdings SOCKET CONFIG``.

A client that connects to the Unix socket reads the report as JSON.
"""

import asyncio
import contextlib
import ctypes
import gc
import json
import os
import socket
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from gateway.network.announcements import CHANGES_KEPT
from gateway.network.interest import Change
from gateway.sessions.session import Session
from tools.cli.gateway.process import run

OURS = ("gateway.", "wire.", "aiohttp.", "uvloop.", "uplink.")
PASSING = {"Message", "Publish", "PublishBatch", "Topics", "LogRow", "Delivery", "Grant", "Flow", "Common", "_Window"}
"""Classes whose objects are in caches of bounded size, or in transit."""
KEPT = {f"{Change.__module__}.{Change.__name__}": CHANGES_KEPT}
"""How many objects of a class a history of its own may hold: the report counts only what goes beyond."""


def holdings() -> dict[str, Any]:
    """Counts what is alive in this process by kind: descriptors, threads, tasks and objects by class; and the sessions.

    Sessions are pairs of client identifier and user. ``blocks`` are Python's objects and parts of them up to 512 bytes,
    ``malloc_kb`` what is larger, or C's, and in use [mallinfo(3)]; ``memory_kb`` is what the process has from
    the system, which stays near what it was at most; ``cpu_s`` is the processor time used so far.
    """
    gc.collect()
    kinds: Counter[str] = Counter()
    sessions = []
    for thing in gc.get_objects():
        kind = type(thing)  # isinstance would resolve proxies
        if issubclass(kind, asyncio.Task):
            kinds["tasks"] += not thing.done()
        elif str(kind.__module__).startswith(OURS) and kind.__name__ not in PASSING:
            kinds[f"{kind.__module__}.{kind.__name__}"] += 1
        if kind is Session:
            sessions.append((thing.client_id, thing.user))
    for name, most in KEPT.items():
        kinds[name] = max(0, kinds[name] - most)
    kinds["descriptors"] = len(os.listdir("/proc/self/fd"))
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    kinds["threads"] = int(status["Threads"])
    return {
        "kinds": kinds,
        "sessions": sessions,
        "blocks": sys.getallocatedblocks(),
        "malloc_kb": _malloc_kb(),
        "memory_kb": int(status["VmRSS"].split()[0]),
        "cpu_s": time.process_time(),
    }


class _Mallinfo(ctypes.Structure):
    _fields_ = (
        ("before", ctypes.c_size_t * 4),
        ("hblkhd", ctypes.c_size_t),  # in pieces of the system's own
        ("between", ctypes.c_size_t * 2),
        ("uordblks", ctypes.c_size_t),  # in all others
        ("behind", ctypes.c_size_t * 2),
    )


def _malloc_kb() -> int:
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    found = mallinfo()
    return int(found.uordblks + found.hblkhd) // 1024


def _answer(listening: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(json.dumps(holdings()).encode())


def main(path: str, config: str) -> None:
    """Runs until SIGTERM."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        threading.Thread(target=_answer, args=(listening,), daemon=True).start()
        run(Path(config))


if __name__ == "__main__":
    main(*sys.argv[1:])
