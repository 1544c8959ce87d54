"""The gateway under torture: a process of its own with every kind of listener, and what it holds, logs and stores."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

from tools.lab.testing.certificates import Authority
from tools.lab.testing.gateway import Gateway
from tools.lab.testing.lines import Ways
from tools.lab.testing.ports import free_port

PORTS = ("tls", "mutual", "websocket", "wss")  # and tcp
USER = "storm"
WARNINGS = ["-W", "always::ResourceWarning"]
QUEUE_MAX = 2_000  # messages of a session: most of the storm's messages are never read
COMPLAINTS = re.compile(
    r"Traceback|never retrieved|never awaited|[Uu]nhandled|unexpected failure|Task was destroyed|ResourceWarning"
    r"|Exception ignored|level=(error|critical)"
)
CONTEXT_LINES = 30  # of the log after a complaint


class StormedGateway(Gateway):
    """A gateway whose files are in `folder`; `serial` are paths of serial ports."""

    def __init__(self, folder: Path, serial: list[str]) -> None:
        authority = Authority(folder / "tls")
        server, server_key = map(str, authority.server())
        own, own_key = map(str, authority.sign(USER, [USER]))
        self._holdings = str(folder / "holdings")
        command = [sys.executable, *WARNINGS, "-m", "tools.lab.torture.broker.holdings", self._holdings]
        super().__init__(folder, name="storm", limits="", command=command)
        ports = {"tcp": self.port} | {kind: free_port() for kind in PORTS}
        self.ways = Ways(ports, {"unix": str(folder / "socket")}, str(authority.path), own, own_key)
        self.configure(_tables(self.ways, server, server_key, serial))

    async def holdings(self) -> dict[str, Any]:
        """Returns the report of `holdings`. Raises OSError if the gateway has ended."""
        reader, writer = await asyncio.open_unix_connection(self._holdings)
        try:
            told: dict[str, Any] = json.loads(await reader.read())
            return told
        finally:
            writer.close()

    def retained(self) -> list[str]:
        """Returns the topics with a retained message."""
        return [topic for (topic,) in self.select("SELECT topic FROM retained")]

    def complaints(self) -> list[str]:
        """Returns the first line of its log that reports a failure, with the lines after it."""
        lines = self._log_file.read_text(errors="replace").splitlines()
        found = [place for place, line in enumerate(lines) if COMPLAINTS.search(line)]
        return ["\n".join(lines[place : place + CONTEXT_LINES]) for place in found[:1]]


def _tables(ways: Ways, certificate: str, key: str, serial: list[str]) -> str:
    tls = f'[listener.tls]\ncertificate = "{certificate}"\nkey = "{key}"\n'
    client_ca = f'client_ca = "{ways.authority}"\n'
    more = {"tls": tls, "wss": tls, "mutual": tls + client_ca}
    text = f"[queue]\nmax_messages = {QUEUE_MAX}\n"
    for kind in PORTS:
        listener = "websocket" if kind in ("websocket", "wss") else "tcp"
        text += f'[[listener]]\nkind = "{listener}"\nport = {ways.ports[kind]}\n{more.get(kind, "")}'
    text += f'[[listener]]\nkind = "unix"\npath = "{ways.paths["unix"]}"\n'
    return text + "".join(f'[[listener]]\nkind = "serial"\ndevice = "{path}"\n' for path in serial)
