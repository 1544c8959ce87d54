"""A real mosquitto whose sessions and retained messages last over clean stops, for tests and torture."""

import getpass
import shutil
import socket
import subprocess
import time
from pathlib import Path

DEADLINE_S = 20.0


class MosquittoUnavailable(Exception):
    """There is no mosquitto here."""


class Mosquitto:
    """One broker with its files in `folder`; it keeps its port over restarts.

    It acknowledges before it writes, so that it must be stopped and not killed where nothing may be lost.

    Args:
        lines: more lines of its configuration; those of the listener come first.
        port: None: one that is free.
        is_persistent: whether anything outlasts a stop.
    """

    def __init__(self, folder: Path, lines: str = "", port: int | None = None, is_persistent: bool = True) -> None:
        found = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
        if found is None:
            raise MosquittoUnavailable("mosquitto is not installed (apt install mosquitto)")
        self.port = port or free_port()
        self._argv = [found, "-c", str(folder / "mosquitto.conf")]
        self._log = folder / "mosquitto.log"
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "mosquitto.conf").write_text(
            f"listener {self.port} 127.0.0.1\n{lines}\nallow_anonymous true\nmax_queued_messages 0\n"
            f"persistence {str(is_persistent).lower()}\npersistence_location {folder}/\nuser {getpass.getuser()}\n"
        )

    def start(self) -> None:
        """Returns when it listens. Raises OSError with its last words where it ends instead."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._argv, stdout=log, stderr=log)
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise OSError(f"mosquitto does not listen: {self._log.read_text()[-500:]}") from error
                time.sleep(0.01)

    def kill(self) -> None:
        """SIGKILL: what it has not written is lost, and it may have acknowledged that."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(DEADLINE_S)
            self._process = None

    def stop(self) -> None:
        """SIGTERM: what it holds is written."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(DEADLINE_S)
            self._process = None


def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
