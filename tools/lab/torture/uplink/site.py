"""What a run tortures: publishers, a gateway with a route, a line, and the next broker with a session that gathers."""

import asyncio
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tools.lab.testing.certificates import Authority
from tools.lab.testing.client import Client, UnexpectedEvent
from tools.lab.testing.gateway import Gateway
from tools.lab.testing.network_link import NetworkLink
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process, ProcessFailed, holdfast, python
from tools.lab.torture.custodians import CUSTODIANS, Reader
from tools.lab.torture.publisher import EPOCH, MARKERS, Publisher
from tools.lab.torture.site import Site
from tools.lab.torture.uplink.clock import Clock
from uplink.control import ControlFailed, ask
from wire.identity import decode_identity
from wire.route_numbers import STATEMENT_TOPICS, Statement, decode_statement, statement_topic

PUBLISHERS = 2
ROUTE, EDGE = "next", "edge"
MARKER_DEADLINE_S = 60.0
STATUS_PAUSE_S = 0.1
REPAIR_DEADLINE_S = 60.0
TABLE = """\
[[route]]
name = "{name}"
broker = "{scheme}://127.0.0.1:{link}"
order = "{order}"
statement_interval_s = {interval}
inflight_window = {window}
keep_alive_s = 1
backoff_shortest_ms = 20
backoff_longest_ms = 200
"""


class Settings(NamedTuple):
    """What a run has: "mosquitto" or "gateway" as the next broker, the QoS of all messages, the route's order, whether
    it makes statements, whether it speaks TLS, its window, and how many messages there are."""

    broker: str
    qos: int
    order: str = "strict"
    has_statements: bool = False
    is_secure: bool = False
    window: int = 100
    messages: int = 0


class RouteSite(Site):
    """One run's processes and files; `open` starts them, `close` ends them.

    Attributes:
        gateway: the gateway.
        link: the line between gateway and next broker.
        next: the next broker.
        clock: the gateway's.
        authority: what signs the next broker's certificate; None without TLS.
        excused: messages that may be missing, as the disk with them is gone: publisher's name and number.
        repeatable: messages that may come twice, as the broker's session or the gateway's disk was lost.
        statements: what the route has stated, in the order in which it came to the next broker; known after `came`.
        identities: how often each message and each marker came to the next broker, by its identity; known after
            `came`.
        is_damaged: whether a page of the store was destroyed, so that ranges `damaged` may stand for messages.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        (folder / "next").mkdir()
        self.authority = Authority(folder / "tls") if settings.is_secure else None
        secure_port = free_port()
        self.next = CUSTODIANS[settings.broker](folder / "next", self._listener(secure_port))
        self._reader = Reader(self.next.port, settings.qos, [f"{STATEMENT_TOPICS}#"] * settings.has_statements)
        self.link = NetworkLink("127.0.0.1", secure_port if settings.is_secure else self.next.port)
        self.clock = Clock(folder / "clock")
        command = python("tools.lab.torture.uplink.clock", str(self.clock.path))
        self.gateway = Gateway(folder, name=EDGE, command=command)
        self.processes = {"the next broker": self.next, "the gateway": self.gateway}
        self.links = {"route": self.link}
        share = -(-settings.messages // PUBLISHERS)
        counts = [min(share, settings.messages - first) for first in range(0, settings.messages, share or 1)]
        self.publishers = [
            Publisher(f"p{number}", self.gateway.port, settings.qos, count) for number, count in enumerate(counts)
        ]
        self.excused: set[tuple[str, int]] = set()
        self.repeatable: set[tuple[str, int]] = set()
        self.statements: list[Statement] = []
        self.identities: Counter[tuple[str, int, int]] = Counter()
        self.is_damaged = False

    async def open(self) -> None:
        """Raises ProcessFailed, OSError."""
        await self.next.up()
        await self._reader.subscribe()
        await self.link.open()
        one = self.settings
        table = TABLE.format(
            name=ROUTE,
            scheme="mqtts" if one.is_secure else "mqtt",
            link=self.link.port,
            window=one.window,
            order=one.order,
            interval=int(one.has_statements),
        )
        tls = "" if self.authority is None else f'[route.tls]\nca = "{self.authority.path}"\n'
        self.gateway.configure(table + tls)
        await self.gateway.up()

    async def repair(self) -> None:
        """Repairs the store of the gateway, which does not run. Raises ProcessFailed."""
        repair = Process("gateway repair", holdfast("gateway", "repair", str(self.gateway.config)))
        code, lines = await repair.to_end(REPAIR_DEADLINE_S)
        if code:
            raise ProcessFailed("\n".join(["gateway repair failed", *lines]))

    @property
    def session(self) -> str:
        """The client identifier of the route at the next broker."""
        return f"{EDGE}-{ROUTE}"

    def lose_store(self) -> None:
        """The gateway, which does not run, has a new disk."""
        shutil.rmtree(self.gateway.messages.parent)

    async def settled(self) -> None:
        """Returns when nothing is in flight between publishers and gateway."""
        await asyncio.gather(*(publisher.settled() for publisher in self.publishers))

    def sent(self) -> set[tuple[str, int]]:
        """The messages that publishers have begun to send."""
        return {(one.name, number) for one in self.publishers for number in range(1, one.sent + 1)}

    async def drained(self) -> None:
        """Returns when all that the gateway has acknowledged is at the next broker; notes a route that stands."""
        await self._marked()
        if self.settings.order == "strict":
            return
        try:  # the markers were fresh, and have overtaken the backfill
            async with asyncio.timeout(MARKER_DEADLINE_S):
                while (await asyncio.to_thread(ask, self.gateway.messages.parent, "status"))[0]["backlog_messages"]:
                    await asyncio.sleep(STATUS_PAUSE_S)
        except (ControlFailed, TimeoutError) as error:
            self.violations.append(f"the backlog did not drain: {error!r}")
        await self._marked()  # behind what was in flight

    async def _marked(self) -> None:
        """Returns when a marker of each publisher has arrived, and a statement if the route makes some."""
        waiting = {f"{MARKERS}/{publisher.name}" for publisher in self.publishers}
        waiting |= {statement_topic(EDGE, ROUTE)} if self.settings.has_statements else set()
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
        found = await self._reader.read()
        self.identities = Counter(decode_identity(identity) for identity, _ in found)
        self.identities.update(
            (p.name, EPOCH, p.count + mark) for p in self.publishers for mark in range(1, p.marks + 1)
        )
        stated = {identity: payload for identity, payload in found if payload.startswith(b"{")}
        self.statements = [decode_statement(payload) for payload in stated.values()]
        return [(*json.loads(payload), identity) for identity, payload in found if identity not in stated]

    def damaged(self) -> int:
        """How many messages the stopped gateway's store says are damaged. Whose they were cannot be read any more."""
        ((messages,),) = self.gateway.select("SELECT sum(messages) FROM dropped WHERE reason = 'damaged'")
        return messages or 0

    def _listener(self, port: int) -> str:
        """The lines of the next broker's configuration for the listener with TLS, at this port."""
        if self.authority is None:
            return ""
        certificate, key = self.authority.server()
        if self.settings.broker == "gateway":
            tls = f'[listener.tls]\ncertificate = "{certificate}"\nkey = "{key}"\n'
            return f'[[listener]]\nkind = "tcp"\nport = {port}\n{tls}'
        return f"listener {port} 127.0.0.1\ncertfile {certificate}\nkeyfile {key}\n"
