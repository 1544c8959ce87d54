"""A real mosquitto whose sessions and retained messages last over clean stops."""

import getpass
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.lab.testing.ports import free_port
from tools.lab.testing.process import ProcessFailed, Server

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


class Mosquitto(Server):
    """One broker with its files in `folder`; it keeps its port over restarts. `start` returns when it listens.

    It acknowledges before it writes. Where nothing may be lost it must be stopped, or must `save` before it is killed.

    Args:
        lines: more lines of its configuration; the listener's come first.
        port: None: one that is free.
        is_persistent: whether anything outlasts a stop.
        prefix: a command that runs the one behind it.
    """

    def __init__(
        self,
        folder: Path,
        lines: str = "",
        port: int | None = None,
        is_persistent: bool = True,
        prefix: Sequence[str] = (),
    ) -> None:
        found = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
        if found is None:
            raise MosquittoUnavailable("mosquitto is not installed (apt install mosquitto)")
        self.port = port or free_port()
        self._saved = folder / "mosquitto.db"
        argv = [*prefix, found, "-c", str(folder / "mosquitto.conf")]
        super().__init__("mosquitto", argv, folder / "mosquitto.log", ready=self.port)
        (folder / "mosquitto.conf").write_text(
            f"listener {self.port} 127.0.0.1\n{lines}\nallow_anonymous true\nmax_queued_messages 0\n"
            f"persistence {str(is_persistent).lower()}\npersistence_location {folder}/\nuser {getpass.getuser()}\n"
        )

    def start(self) -> None:
        """Returns when it listens. Raises ProcessFailed with its last words where it ends instead."""
        super().start()
        self.wait_ready()

    async def interrupt(self) -> None:
        """Stops it, so that what it holds is written, and starts it again."""
        await self.down()
        self.start()

    def save(self) -> None:
        """Has it write all that it holds; returns when its file is there. Raises ProcessFailed."""
        before = self._saved_file()
        self.signal(signal.SIGUSR1)
        deadline = time.monotonic() + SAVE_DEADLINE_S
        while self._saved_file() == before:  # it writes a new file, and then renames it
            if not self.running or time.monotonic() > deadline:
                raise ProcessFailed(f"mosquitto did not write {self._saved.name}")
            time.sleep(0.005)

    def _saved_file(self) -> tuple[int, int]:
        """Returns what tells one of its files from the next; zeros if there is none."""
        try:
            status = self._saved.stat()
        except FileNotFoundError:
            return 0, 0
        return status.st_ino, status.st_mtime_ns


@contextmanager
def mosquitto(folder: Path, port: int | None = None) -> Iterator[int]:
    """Runs mosquitto without persistence and limits on queues and windows; yields its port."""
    broker = Mosquitto(folder, "max_inflight_messages 0", port, is_persistent=False)
    broker.start()
    try:
        yield broker.port
    finally:
        broker.stop()
