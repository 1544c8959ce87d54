"""A real RabbitMQ with its plugin for AMQP 1.0."""

import os
import shutil
import signal
from pathlib import Path

from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process

PROGRAM = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the one in /usr/sbin changes to a user of its own
CONF = """\
listeners.tcp.1 = 127.0.0.1:{port}
loopback_users = none
log.console = true
log.console.level = warning
"""


class RabbitMqUnavailable(Exception):
    """There is no RabbitMQ here."""


class RabbitMq:
    """One broker with its files in `folder`; it keeps its port over restarts. A client logs in as `guest`, `guest`.

    It takes some ten seconds to start.

    Args:
        lines: more lines of its configuration.
    """

    def __init__(self, folder: Path, lines: str = "") -> None:
        names = shutil.which("epmd")
        if names is None or not Path(PROGRAM).exists():
            raise RabbitMqUnavailable("RabbitMQ is not installed (apt install rabbitmq-server)")
        folder.mkdir(parents=True, exist_ok=True)
        self.port, epmd_port = free_port(), free_port()
        (folder / "rabbitmq.conf").write_text(CONF.format(port=self.port) + lines)
        (folder / "plugins").write_text("[rabbitmq_amqp1_0].\n")
        environment = {
            "HOME": str(folder),
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "ERL_EPMD_PORT": str(epmd_port),
        }
        self._names = Process("epmd", [names, "-port", str(epmd_port)])  # otherwise Erlang starts one that stays
        self._epmd_port = epmd_port
        self._process = Process("rabbitmq", [PROGRAM], folder / "rabbitmq.log", environment)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"amqp://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when it listens. Raises ProcessFailed with its last words where it ends instead."""
        if not self._names.running:
            self._names.start()
            self._names.listens(self._epmd_port)
        self._process.start()
        self._process.listens(self.port)

    def make_lasting(self, address: str) -> None:
        """Starts it with a durable queue that outlasts a kill, and so does what the queue has accepted.

        RabbitMQ 3.10 writes the definition of a queue some time after the queue has accepted messages. A kill before
        that loses the queue with its messages. An orderly end writes it.
        """
        from tools.lab.testing.amqp import Durable, connect  # few have its library

        self.start()
        connection = connect(self.url)
        connection.create_sender(address, options=Durable())
        connection.close()
        self._signal(signal.SIGTERM)
        self._process.ended()
        self.start()

    def kill(self) -> None:
        """SIGKILL."""
        self._signal(signal.SIGKILL)
        self._process.kill()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.running:  # the command is a shell, with the broker in its process group
            os.killpg(self._process.pid, number)

    def close(self) -> None:
        """Ends it for good."""
        self.kill()
        self._names.kill()
