"""A gateway in a process of its own, with its files in a folder."""

import contextlib
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Server, holdfast

CONFIG = """\
name = "{name}"
{acl}
[store]
path = "store"
volatile = true
{store}
[limits]
{limits}
[[listener]]
kind = "tcp"
port = {port}
{tables}"""
LASTING = "session_expiry_max_s = 4294967295"
RUN = holdfast("gateway", "run", "--config")
COMPLAINTS = re.compile(
    r"Traceback|never retrieved|never awaited|unexpected failure|Task was destroyed|ends by a failure of its own"
)


class Gateway(Server):
    """One gateway; it keeps its port and its store over restarts.

    Args:
        folder: where its files are, which exists.
        tables: more of its configuration, behind its listener.
        name: its name.
        rules: its access rules; "" for none.
        store, limits: lines of these tables. By default sessions may last for ever.
        port: 0: one that is free.
        command: what runs a gateway, before the path of its configuration.
    """

    def __init__(
        self,
        folder: Path,
        tables: str = "",
        *,
        name: str = "gateway",
        rules: str = "",
        store: str = "",
        limits: str = LASTING,
        port: int = 0,
        command: Sequence[str] = RUN,
    ) -> None:
        self.port = port or free_port()
        self.folder = folder
        self.config = folder / "gateway.toml"
        self._log_file = folder / "gateway.log"
        super().__init__(name, [*command, str(self.config)], self._log_file, ready="ready")
        if rules:
            (folder / "rules").write_text(rules)
        keys = {"name": name, "store": store, "limits": limits, "port": self.port}
        self._config = CONFIG.format(acl='acl = "rules"' if rules else "", tables="{tables}", **keys)
        self.configure(tables)

    def configure(self, tables: str) -> None:
        """Writes its configuration with other tables, which count from its next start on."""
        self.config.write_text(self._config.replace("{tables}", tables))

    async def interrupt(self) -> None:
        """Kills it, since it has stored all that it has acknowledged, and starts it again. Raises ProcessFailed."""
        self.kill()
        await self.up()

    @property
    def messages(self) -> Path:
        """The database of its store."""
        return self.folder / "store" / "messages.sqlite"

    def select(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Returns the rows of a query of this database."""
        with contextlib.closing(sqlite3.connect(f"file:{self.messages}?mode=ro", uri=True)) as database:
            return database.execute(sql, values).fetchall()

    def complaints(self) -> list[str]:
        """Returns a sentence for the first complaint in its log, if there is one."""
        return list(complaints(self._log_file.read_text(errors="replace").splitlines()))[:1]


def complaints(log: Iterable[str]) -> Iterator[str]:
    """Yields a sentence for each complaint in a gateway's log, with the error that a traceback ends with."""
    lines = iter(log)
    for line in lines:
        if COMPLAINTS.search(line):
            error = next((after for after in lines if not after.startswith(" ")), "") if "Traceback" in line else ""
            yield f"the gateway's log: {line} {error}".rstrip()
