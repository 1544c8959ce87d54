"""Readings about the machine itself, from Linux's /proc and /sys: load, memory, disks, network, temperature."""

import os

from device.sensors.driver import Driver

SECTOR_BYTES = 512  # in /proc/diskstats, whatever the disk's own sectors are
VIRTUAL_DISKS = ("loop", "ram", "zram", "dm-", "md")  # not counted: their bytes go to a real disk as well, or to none
DISK_READ, DISK_WRITTEN = 5, 9  # columns
COLDEST, HOTTEST = -55, 150  # of the machines that there are
NETWORK_RECEIVED, NETWORK_SENT = 0, 8


class Host(Driver):
    """The machine's readings. Counters count from its boot. A source that is missing or fails is left out.

    Args:
        root: the folder that holds `proc` and `sys`.
    """

    METRICS = (
        "load",
        "memory_available",
        "disk_read",
        "disk_written",
        "network_received",
        "network_sent",
        "temperature",
    )

    def __init__(self, root: str = "") -> None:
        self._root = root

    def sample(self) -> list:
        """Returns [(name, unit, value)] of the sources that this machine has."""
        samples: list = []
        for source in (self._load, self._memory, self._disk, self._network, self._temperature):
            try:
                samples += source()
            except (OSError, ValueError, IndexError):
                pass
        return samples

    def _load(self) -> list:
        return [("load", "/", float(self._read("/proc/loadavg").split()[0]))]

    def _memory(self) -> list:
        with self._open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return [("memory_available", "B", 1024 * int(line.split()[1]))]
        return []

    def _disk(self) -> list:
        disks = [disk for disk in self._list("/sys/block") if not any(disk.startswith(v) for v in VIRTUAL_DISKS)]
        with self._open("/proc/diskstats") as lines:
            rows = (line.split() for line in lines)
            return _add_up(
                (row for row in rows if len(row) > DISK_WRITTEN and row[2] in disks),
                (("disk_read", DISK_READ, SECTOR_BYTES), ("disk_written", DISK_WRITTEN, SECTOR_BYTES)),
            )

    def _network(self) -> list:
        with self._open("/proc/net/dev") as lines:
            rows = (line.partition(":") for line in lines)
            return _add_up(
                (counters.split() for name, colon, counters in rows if colon and name.strip() != "lo"),
                (("network_received", NETWORK_RECEIVED, 1), ("network_sent", NETWORK_SENT, 1)),
            )

    def _temperature(self) -> list:
        for folder, start, file in (
            ("/sys/class/thermal", "thermal_zone", "temp"),
            ("/sys/class/hwmon", "hwmon", "temp1_input"),
        ):
            for name in self._list(folder):
                if name.startswith(start):
                    try:
                        celsius = int(self._read(f"{folder}/{name}/{file}")) / 1000
                    except (OSError, ValueError):
                        continue
                    if COLDEST <= celsius <= HOTTEST:  # Linux gives -274 for a zone that has no value
                        return [("temperature", "Cel", celsius)]
        return []

    def _read(self, path: str) -> str:
        with self._open(path) as file:
            return file.read()

    def _open(self, path: str):
        """Opens a file; read large ones line by line, because they may not fit into a small heap."""
        return open(self._root + path)

    def _list(self, folder: str) -> list:
        try:
            return sorted(os.listdir(self._root + folder))
        except OSError:
            return []


def _add_up(rows, columns: tuple) -> list:
    """Adds up columns over all rows; `columns` are (name, column, bytes per count). Without rows there is no sample."""
    sums = [0] * len(columns)
    found = False
    for row in rows:
        found = True
        for place, (_, column, size) in enumerate(columns):
            sums[place] += size * int(row[column])
    return [(columns[place][0], "B", total) for place, total in enumerate(sums)] if found else []
