"""What a process and all its descendants use: processor time, and memory at its peak."""

import os
import subprocess
import threading
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_EVERY_S = 0.2


class Usage:
    """Runs a command to its end. `cpu_s` and `peak_bytes` are of all its processes together."""

    def __init__(self, command: list[str]) -> None:
        self._cpu: dict[int, float] = {}
        self.peak_bytes = 0
        self._ended = threading.Event()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        watcher = threading.Thread(target=self._watch, args=(process.pid,))
        watcher.start()
        self.output, _ = process.communicate()
        self._ended.set()
        watcher.join()
        self.exit_code = process.returncode

    @property
    def cpu_s(self) -> float:
        return sum(self._cpu.values())

    def _watch(self, session: int) -> None:
        while not self._ended.wait(_EVERY_S):
            found = [path for path in Path("/proc").glob("[0-9]*") if self._belongs(path, session)]
            self.peak_bytes = max(self.peak_bytes, sum(map(self._memory, found)))

    def _belongs(self, process: Path, session: int) -> bool:
        """Says whether a process is of the session, and notes the time that it has used."""
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return False
        if int(fields[3]) != session:
            return False
        self._cpu[int(process.name)] = (int(fields[11]) + int(fields[12])) / _TICKS
        return True

    def _memory(self, process: Path) -> int:
        """Returns the share of a process in the memory: pages of several processes count once."""
        try:
            lines = (process / "smaps_rollup").read_text().splitlines()
        except OSError:
            return 0
        return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
