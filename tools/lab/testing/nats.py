"""A real nats-server."""

import shutil
from pathlib import Path

from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Server


class NatsUnavailable(Exception):
    """There is no nats-server here."""


class NatsServer(Server):
    """One server with JetStream and its files in `folder`; it keeps its port over restarts.

    Args:
        lines: more lines of its configuration.
    """

    def __init__(self, folder: Path, lines: str = "", port: int | None = None) -> None:
        found = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin")
        if found is None:
            raise NatsUnavailable("nats-server is not installed (apt install nats-server)")
        folder.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        (folder / "nats.conf").write_text(
            f'host: 127.0.0.1\nport: {self.port}\njetstream {{ store_dir: "{folder}/jetstream" }}\n{lines}\n'
        )
        argv = [found, "-c", str(folder / "nats.conf")]
        super().__init__("nats-server", argv, folder / "nats.log", ready="Server is ready")

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when it listens. Raises ProcessFailed with its last words where it ends instead."""
        super().start()
        self.wait_ready()
