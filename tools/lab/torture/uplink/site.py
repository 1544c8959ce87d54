"""What a run tortures: publishers, a gateway with a route, a line, and the next broker with a session that gathers."""

import asyncio
import contextlib
import json
import random
import resource
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.cli.paths import source_root
from tools.lab.demo.site import holdfast
from tools.lab.testing.certificates import Authority
from tools.lab.testing.client import Client, UnexpectedEvent
from tools.lab.testing.network_link import NetworkLink
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process, ProcessFailed
from tools.lab.torture.device.brokers import BROKERS, Reader
from tools.lab.torture.uplink.clock import Clock
from tools.lab.torture.uplink.publisher import EPOCH, MARKERS, Publisher
from uplink.control import ControlFailed, ask
from wire.identity import decode_identity
from wire.route_numbers import STATEMENT_TOPICS, Statement, decode_statement, statement_topic

PUBLISHERS = 2
ROUTE = "next"
GATEWAY = "edge"
MARKER_DEADLINE_S = 60.0
STATUS_PAUSE_S = 0.1
WINDOWS = (1, 10, 100, 1000)
CONFIG = """\
name = "{name}"
[store]
path = "store"
[limits]
session_expiry_max_s = 4294967295
[[listener]]
kind = "tcp"
port = {port}
[[route]]
name = "{route}"
broker = "{scheme}://127.0.0.1:{link}"
order = "{order}"
statement_interval_s = {interval}
inflight_window = {window}
keep_alive_s = 1
backoff_shortest_ms = 20
backoff_longest_ms = 200
"""
REPAIR_DEADLINE_S = 60.0


class Site:
    """One run's processes and files; `open` starts them, `close` ends them.

    Args:
        folder: an empty folder.
        broker: "mosquitto" or "gateway", the next broker.
        qos: of all messages.
        count: how many messages there are.
        is_secure: whether the route speaks TLS.
        chance: draws the route's window.
        order: the route's.
        has_statements: whether the route makes statements.

    Attributes:
        process: the gateway.
        link: the line between gateway and next broker.
        next: the next broker.
        clock: the gateway's.
        publishers: they publish to the gateway, past the line.
        excused: messages that may be missing, as the disk with them is gone: publisher's name and number.
        repeatable: messages that may come twice, as the broker's session or the gateway's disk was lost.
        statements: what the route has stated, in the order in which it came to the next broker; known after `came`.
        identities: how often each message and each marker came to the next broker, by its identity; known after
            `came`.
        is_damaged: whether a page of the store was destroyed, so that ranges `damaged` may stand for messages.
        violations: what no count tells.
    """

    def __init__(
        self,
        folder: Path,
        broker: str,
        qos: int,
        count: int,
        is_secure: bool,
        chance: random.Random,
        order: str = "strict",
        *,
        has_statements: bool = False,
    ) -> None:
        self._folder = folder
        self._interval_s = int(has_statements)
        self._order = order
        self._qos = qos
        self._is_secure = is_secure
        self._window = chance.choice(WINDOWS)
        (folder / "next").mkdir()
        self.authority = Authority(folder / "tls") if is_secure else None
        self._secure_port = free_port()
        self.next = BROKERS[broker](folder / "next", self._listener(broker))
        self._reader = Reader(self.next.port, qos, [f"{STATEMENT_TOPICS}#"] * has_statements)
        self.link = NetworkLink("127.0.0.1", self._secure_port if is_secure else self.next.port)
        self.clock = Clock(folder / "clock")
        self._port = free_port()
        self._config = folder / "gateway.toml"
        self.process = Process(
            "gateway",
            [sys.executable, "-m", "tools.lab.torture.uplink.clock", str(self.clock.path), str(self._config)],
            folder / "gateway.log",
            {"PYTHONPATH": str(source_root())},
        )
        share = -(-count // PUBLISHERS)
        counts = [min(share, count - first) for first in range(0, count, share)]
        self.publishers = [Publisher(f"p{number}", self._port, qos, one) for number, one in enumerate(counts)]
        self.excused: set[tuple[str, int]] = set()
        self.repeatable: set[tuple[str, int]] = set()
        self.statements: list[Statement] = []
        self.identities: Counter[tuple[str, int, int]] = Counter()
        self.is_damaged = False
        self.violations: list[str] = []

    async def open(self) -> None:
        """Raises ProcessFailed, OSError."""
        await self.next.start()
        await asyncio.to_thread(self._reader.subscribe)
        await self.link.open()
        tls = "" if self.authority is None else f'[route.tls]\nca = "{self.authority.path}"\n'
        self._config.write_text(
            CONFIG.format(
                name=GATEWAY,
                port=self._port,
                route=ROUTE,
                scheme="mqtts" if self._is_secure else "mqtt",
                link=self.link.port,
                window=self._window,
                order=self._order,
                interval=self._interval_s,
            )
            + tls
        )
        await self.start()

    async def start(self) -> None:
        """Starts the gateway on the store that it has. Raises ProcessFailed."""
        self.process.start()
        await asyncio.to_thread(self.process.says, "ready")

    async def repair(self) -> None:
        """Repairs the store of the gateway, which does not run. Raises ProcessFailed."""
        argv = holdfast("gateway", "repair", str(self._config))
        process = Process("repair", argv, self._folder / "gateway.log", {"PYTHONPATH": str(source_root())})
        process.start()
        code, lines = await asyncio.to_thread(process.ended, REPAIR_DEADLINE_S)
        if code:
            raise ProcessFailed("\n".join(["gateway repair failed", *lines]))

    @property
    def store(self) -> Path:
        """The database of the gateway's store."""
        return self._folder / "store" / "messages.sqlite"

    @property
    def session(self) -> str:
        """The client identifier of the route at the next broker."""
        return f"{GATEWAY}-{ROUTE}"

    def lose_store(self) -> None:
        """The gateway, which does not run, has a new disk."""
        shutil.rmtree(self.store.parent)

    def limit_files(self, size: int) -> None:
        """No file of the running gateway grows beyond `size` bytes; -1: any may. The disk is full."""
        with contextlib.suppress(ProcessLookupError):  # a gateway that has ended
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, -1))

    async def start_ended(self, fault: str) -> None:
        """Starts the gateway again if it has ended by itself in a fault, and notes it as a violation."""
        if not self.process.running:
            self.violations.append(f"the gateway has ended by itself, in {fault}")
            await self.start()

    async def settled(self) -> None:
        """Returns when nothing is in flight between publishers and gateway."""
        await asyncio.gather(*(publisher.settled() for publisher in self.publishers))

    def sent(self) -> set[tuple[str, int]]:
        """The messages that publishers have begun to send."""
        return {(one.name, number) for one in self.publishers for number in range(1, one.sent + 1)}

    async def drained(self) -> None:
        """Returns when all that the gateway has acknowledged is at the next broker; notes a route that stands."""
        await self._marked()
        if self._order == "strict":
            return
        try:  # the markers were fresh, and have overtaken the backfill
            async with asyncio.timeout(MARKER_DEADLINE_S):
                while (await asyncio.to_thread(ask, self.store.parent, "status"))[0]["backlog_messages"]:
                    await asyncio.sleep(STATUS_PAUSE_S)
        except (ControlFailed, TimeoutError) as error:
            self.violations.append(f"the backlog did not drain: {error!r}")
        await self._marked()  # behind what was in flight

    async def _marked(self) -> None:
        """Returns when a marker of each publisher has arrived, and a statement if the route makes some."""
        waiting = {f"{MARKERS}/{publisher.name}" for publisher in self.publishers}
        waiting |= {statement_topic(GATEWAY, ROUTE)} if self._interval_s else set()
        watcher = Client("watcher", clean_start=True, session_expiry_s=0, keep_alive_s=0)
        try:
            async with asyncio.timeout(MARKER_DEADLINE_S):
                await watcher.connect(self.next.port)
                await watcher.subscribe(f"{MARKERS}/#")
                await watcher.subscribe(f"{STATEMENT_TOPICS}#")
                for publisher in self.publishers:
                    await publisher.mark()
                while waiting:
                    waiting.discard((await watcher.receive()).topic)
        except (OSError, TimeoutError, UnexpectedEvent) as error:
            self.violations.append(f"{', '.join(sorted(waiting))} did not arrive: {error!r}")
        finally:
            watcher.cut()

    async def came(self) -> list[tuple[str, int, str]]:
        """All messages of publishers that the next broker holds, in its order: publisher, number and identity."""
        found = await asyncio.to_thread(self._reader.read)
        self.identities = Counter(decode_identity(identity) for identity, _ in found)
        self.identities.update(
            (p.name, EPOCH, p.count + mark) for p in self.publishers for mark in range(1, p.marks + 1)
        )
        stated = {identity: payload for identity, payload in found if payload.startswith(b"{")}
        self.statements = [decode_statement(payload) for payload in stated.values()]
        return [(*json.loads(payload), identity) for identity, payload in found if identity not in stated]

    def damaged(self) -> int:
        """How many messages the stopped gateway's store says are damaged. Whose they were cannot be read any more."""
        with contextlib.closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True)) as database:
            query = "SELECT sum(messages) FROM dropped WHERE reason = 'damaged'"
            return database.execute(query).fetchone()[0] or 0

    def log(self) -> Iterator[str]:
        """The gateway's log."""
        yield from (self._folder / "gateway.log").read_text(errors="replace").splitlines()

    async def close(self) -> None:
        await asyncio.to_thread(self.process.stop)
        await self.link.cut()
        await self.next.stop()

    def _listener(self, broker: str) -> str:
        """The lines of the next broker's configuration for the listener with TLS."""
        if self.authority is None:
            return ""
        certificate, key = self.authority.server()
        if broker == "gateway":
            tls = f'[listener.tls]\ncertificate = "{certificate}"\nkey = "{key}"\n'
            return f'[[listener]]\nkind = "tcp"\nport = {self._secure_port}\n{tls}'
        return f"listener {self._secure_port} 127.0.0.1\ncertfile {certificate}\nkeyfile {key}\n"
