"""What the disk below a folder can do, and how much has been written to it.

``python -m tools.lab.bench.broker.disk FOLDER`` prints how long a sync takes, in seconds.
"""

import os
import sys
import time
from pathlib import Path

from gateway.store import wal

FRAME_SIZE = wal.FRAME_HEADER_SIZE + wal.PAGE_SIZE  # what SQLite writes for a page of a store
SYNCS = 100
SECTOR_SIZE = 512  # of /sys/dev/block, whatever the disk's own is


def sync_s(folder: Path) -> float:
    """Returns the average seconds to write and sync as much as the smallest commit, into a file that exists."""
    return sum(_syncs_s(folder, SYNCS, 0.0)) / SYNCS


def paced_syncs_s(folder: Path, rate: float, seconds: float) -> list[float]:
    """Returns the seconds of each sync in ascending order, at a rate in syncs/s; a disk with pauses is slower."""
    return sorted(_syncs_s(folder, int(rate * seconds) + 1, 1 / rate))


def _syncs_s(folder: Path, count: int, interval_s: float) -> list[float]:
    path = folder / "sync"
    number = os.open(path, os.O_RDWR | os.O_CREAT)
    took = []
    try:
        os.pwrite(number, bytes(FRAME_SIZE * SYNCS), 0)
        os.fsync(number)
        begun = time.perf_counter()
        for index in range(count):
            if interval_s:
                time.sleep(max(0.0, begun + index * interval_s - time.perf_counter()))
            started = time.perf_counter()
            os.pwrite(number, b"x" * FRAME_SIZE, index % SYNCS * FRAME_SIZE)
            os.fdatasync(number)
            took.append(time.perf_counter() - started)
        return took
    finally:
        os.close(number)
        path.unlink()


def bytes_written(folder: Path) -> int | None:
    """Returns the bytes written to the folder's disk since the machine's start; None if the system does not count."""
    device = os.stat(folder).st_dev
    try:
        statistics = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text()
    except OSError:
        return None
    return int(statistics.split()[6]) * SECTOR_SIZE


if __name__ == "__main__":
    print(sync_s(Path(sys.argv[1])))
