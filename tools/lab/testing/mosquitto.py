"""A real mosquitto whose sessions and retained messages last over clean stops, for tests and torture."""

import getpass
import shutil
import signal
import time
from pathlib import Path

from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process, ProcessFailed

INFLIGHT_RECOMMENDED = 1000
SAVE_DEADLINE_S = 60.0
RECOMMENDED = f"""\
max_queued_messages 0
max_queued_bytes 0
max_inflight_messages {INFLIGHT_RECOMMENDED}
persistence true
autosave_interval 1
autosave_on_changes true
"""
"""What docs/how-to/next-broker.md says for the broker behind a route and before a lander."""


def recommended(inflight: int) -> str:
    """Returns these lines with another `max_inflight_messages`; 0 is no limit."""
    return RECOMMENDED.replace(f"inflight_messages {INFLIGHT_RECOMMENDED}", f"inflight_messages {inflight}")


class MosquittoUnavailable(Exception):
    """There is no mosquitto here."""


class Mosquitto:
    """One broker with its files in `folder`; it keeps its port over restarts.

    It acknowledges before it writes. Where nothing may be lost it must be stopped, or must `save` before it is killed.

    Args:
        lines: more lines of its configuration; the listener's come first.
        port: None: one that is free.
        is_persistent: whether anything outlasts a stop.
    """

    def __init__(self, folder: Path, lines: str = "", port: int | None = None, is_persistent: bool = True) -> None:
        found = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
        if found is None:
            raise MosquittoUnavailable("mosquitto is not installed (apt install mosquitto)")
        self.port = port or free_port()
        self._saved = folder / "mosquitto.db"
        self._process = Process("mosquitto", [found, "-c", str(folder / "mosquitto.conf")], folder / "mosquitto.log")
        (folder / "mosquitto.conf").write_text(
            f"listener {self.port} 127.0.0.1\n{lines}\nallow_anonymous true\nmax_queued_messages 0\n"
            f"persistence {str(is_persistent).lower()}\npersistence_location {folder}/\nuser {getpass.getuser()}\n"
        )

    def start(self) -> None:
        """Returns when it listens. Raises ProcessFailed with its last words where it ends instead."""
        self._process.start()
        self._process.listens(self.port)

    def says(self, text: str) -> str:
        """Waits for a line in its log since its last start that holds `text`, and returns it. Raises ProcessFailed."""
        return self._process.says(text)

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        self._process.signal(number)

    def save(self) -> None:
        """Has it write all that it holds; returns when its file is there. Raises ProcessFailed."""
        before = self._saved_file()
        self._process.signal(signal.SIGUSR1)
        deadline = time.monotonic() + SAVE_DEADLINE_S
        while self._saved_file() == before:  # it writes a new file, and then renames it
            if not self._process.running or time.monotonic() > deadline:
                raise ProcessFailed(f"mosquitto did not write {self._saved.name}")
            time.sleep(0.005)

    def kill(self) -> None:
        """SIGKILL: what it has not written is lost, and it may have acknowledged that."""
        self._process.kill()

    def stop(self) -> None:
        """SIGTERM: what it holds is written."""
        self._process.stop()

    def _saved_file(self) -> tuple[int, int]:
        """Returns what tells one of its files from the next; zeros if there is none."""
        try:
            status = self._saved.stat()
        except FileNotFoundError:
            return 0, 0
        return status.st_ino, status.st_mtime_ns
