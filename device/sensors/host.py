"""The machine itself: load, memory, disks, network, temperature, from Linux's /proc and /sys."""

import os

from device.sensors.driver import Driver

SECTOR_BYTES = 512  # in /proc/diskstats, whatever the disk's own sectors are
VIRTUAL_DISKS = ("loop", "ram", "zram", "dm-", "md")  # their bytes go through others, or to no disk
DISK_READ, DISK_WRITTEN = 5, 9  # columns
NETWORK_RECEIVED, NETWORK_SENT = 0, 8


class Host(Driver):
    """Counters count since the machine's boot. A source that is not there or fails is left out.

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
        self._sources = (self._load, self._memory, self._disk, self._network, self._temperature)

    def sample(self) -> list:
        """[(name, unit, value)] of what this machine has."""
        samples: list = []
        for source in self._sources:
            try:
                samples += source()
            except (OSError, ValueError, IndexError):
                pass
        return samples

    def _load(self) -> list:
        return [("load", "/", float(self._read("/proc/loadavg").split()[0]))]

    def _memory(self) -> list:
        for line in self._read("/proc/meminfo").split("\n"):
            if line.startswith("MemAvailable:"):
                return [("memory_available", "B", 1024 * int(line.split()[1]))]
        return []

    def _disk(self) -> list:
        disks = [disk for disk in self._list("/sys/block") if not any(disk.startswith(v) for v in VIRTUAL_DISKS)]
        rows = [line.split() for line in self._read("/proc/diskstats").split("\n")]
        rows = [row for row in rows if len(row) > DISK_WRITTEN and row[2] in disks]
        if not rows:
            return []
        read = sum([int(row[DISK_READ]) for row in rows])
        written = sum([int(row[DISK_WRITTEN]) for row in rows])
        return [("disk_read", "B", SECTOR_BYTES * read), ("disk_written", "B", SECTOR_BYTES * written)]

    def _network(self) -> list:
        lines = [line.partition(":") for line in self._read("/proc/net/dev").split("\n")]
        rows = [counters.split() for name, colon, counters in lines if colon and name.strip() != "lo"]
        if not rows:
            return []
        received = sum([int(row[NETWORK_RECEIVED]) for row in rows])
        sent = sum([int(row[NETWORK_SENT]) for row in rows])
        return [("network_received", "B", received), ("network_sent", "B", sent)]

    def _temperature(self) -> list:
        for folder, start, file in (
            ("/sys/class/thermal", "thermal_zone", "temp"),
            ("/sys/class/hwmon", "hwmon", "temp1_input"),
        ):
            for name in self._list(folder):
                if name.startswith(start):
                    try:
                        return [("temperature", "Cel", int(self._read(f"{folder}/{name}/{file}")) / 1000)]
                    except (OSError, ValueError):
                        continue
        return []

    def _read(self, path: str) -> str:
        with open(self._root + path) as file:
            return file.read()

    def _list(self, folder: str) -> list:
        try:
            return sorted(os.listdir(self._root + folder))
        except OSError:
            return []
