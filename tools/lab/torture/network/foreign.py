"""A run over a foreign system: one gateway exports, another one imports, and both and the server are killed.

What came is counted where it comes out again: at a client of the gateway that imports. With NATS the stream is counted
too. Each message has an identity from its publisher, and comes once by it.
"""

import asyncio
import enum
import json
import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Protocol

import nats

from tools.lab.testing.client import Client
from tools.lab.testing.nats import NatsServer
from tools.lab.testing.rabbitmq import RabbitMq
from tools.lab.torture.network.oracle import NetworkOutcome
from tools.lab.torture.network.site import new_gateway
from tools.lab.torture.outcome import named
from tools.lab.torture.publisher import MARKERS, TOPIC, Publisher
from tools.lab.torture.site import Site
from tools.lab.torture.strikes import Faults, draw_strikes, strike_until_drained, told_strikes

RUN_DEADLINE_S = 300.0
PUBLISHERS = 3
STREAM, PROJECT, QUEUE = "TORTURE", "torture", "/queue/torture"
LAST = "last"
ROUTE = """\
[[route]]
kind = "{kind}"
name = "over"
servers = ["{url}"]
{more}project = "{project}"
filters = {filters}
retry_interval_s = 5
backoff_shortest_ms = 20
backoff_longest_ms = 200
"""
LOGIN = f'user = "guest"\npassword_file = "password"\naddress = "{QUEUE}"\n'


class Over(enum.StrEnum):
    """The foreign system."""

    NATS = "nats"
    AMQP = "amqp"


class Server(Protocol):
    """The system's server."""

    @property
    def url(self) -> str: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...


EXPORT, IMPORT, SERVER = range(3)
KILLED = {"export": {EXPORT}, "import": {IMPORT}, "server": {SERVER}}
KILLED |= {"both": {EXPORT, IMPORT}, "all": {EXPORT, IMPORT, SERVER}, "end": {EXPORT, SERVER}}


class Exchange(Site):
    """A gateway that exports, the system's server, and a gateway that imports.

    Attributes:
        came: how often each message has come to a client of the gateway that imports.
    """

    def __init__(self, folder: Path, over: Over, messages: int) -> None:
        super().__init__()
        self.came: Counter[str] = Counter()
        self.server: Server = NatsServer(folder / "nats") if over is Over.NATS else RabbitMq(folder / "rabbitmq")
        self.gateways = [new_gateway(folder, number) for number in (EXPORT, IMPORT)]
        self.processes = {gateway.name: gateway for gateway in self.gateways}
        port, each = self.gateways[EXPORT].port, messages // PUBLISHERS
        self.publishers = [Publisher(f"p{number}", port, 1, each) for number in range(PUBLISHERS)]
        keys = {"kind": over.value, "url": self.server.url, "project": PROJECT, "more": ""}
        if over is Over.AMQP:
            keys["more"] = LOGIN
            for gateway in self.gateways:
                password = folder / gateway.name / "password"
                password.write_text("guest\n")
                password.chmod(0o600)
        source = f'stream = "{STREAM}"' if over is Over.NATS else f'address = "{QUEUE}"'
        self.gateways[0].configure(ROUTE.format(**keys, filters=f'["{TOPIC}/#", "{MARKERS}/#"]'))
        self.gateways[1].configure(ROUTE.format(**keys, filters="[]") + f'[[route.incoming]]\ntopic = "#"\n{source}\n')

    async def open(self) -> None:
        if isinstance(self.server, RabbitMq):
            self.server.make_lasting(QUEUE)
        else:
            self.server.start()
            client = await nats.connect(self.server.url)
            await client.jetstream().add_stream(name=STREAM, subjects=[f"{PROJECT}.>"])
            await client.close()
        for gateway in self.gateways:
            await gateway.up()
        reader = await self.reader()
        await reader.subscribe(f"{TOPIC}/#", f"{LAST}/#")
        await reader.disconnect()

    async def reader(self) -> Client:
        """A client of the gateway that imports; its session lasts."""
        return await Client("reader", clean_start=False, keep_alive_s=0).connect(self.gateways[1].port)

    async def drained(self) -> None:
        """Counts how often each message comes. It ends with a message behind all that are stored, once none is missing.

        Raises TimeoutError.
        """
        wanted = {one.payload(number).decode() for one in self.publishers for number in one.accepted}
        reader = await self.reader()
        while wanted - self.came.keys():
            self.came[(await reader.receive()).payload.decode()] += 1
        last = await Client("last").connect(self.gateways[1].port)
        await last.publish(f"{LAST}/one", json.dumps(LAST).encode())
        while (payload := (await reader.receive()).payload.decode()) != json.dumps(LAST):
            self.came[payload] += 1
        await last.disconnect()
        await reader.disconnect()

    async def stored(self) -> Counter[str]:
        """How often the stream has each payload."""
        client = await nats.connect(self.server.url)
        jetstream = client.jetstream()
        state = (await jetstream.stream_info(STREAM)).state
        found: Counter[str] = Counter()
        for seq in range(state.first_seq, state.last_seq + 1):
            message = await jetstream.get_msg(STREAM, seq)
            if message.subject and message.subject.startswith(f"{PROJECT}.{TOPIC}."):
                found[(message.data or b"").decode()] += 1
        await client.close()
        return found

    async def close(self) -> None:
        await super().close()
        await asyncio.to_thread(self.server.close if isinstance(self.server, RabbitMq) else self.server.kill)


async def _kill(which: set[int], site: Exchange, _: random.Random) -> None:
    """Kills all of these at once, and starts them again."""
    killed = [gateway for number, gateway in enumerate(site.gateways) if number in which]
    kills = [gateway.kill for gateway in killed] + [site.server.kill] * (SERVER in which)
    await asyncio.gather(*(asyncio.to_thread(kill) for kill in kills))
    if SERVER in which:
        site.server.start()
    for gateway in killed:
        await gateway.up()


FAULTS: Faults[Exchange] = {name: partial(_kill, which) for name, which in KILLED.items()}


async def run(outcome: NetworkOutcome, folder: Path, seed: int, faults: int, messages: int, over: Over) -> None:
    """Tortures one export and import, and adds what came of it. Raises NatsUnavailable, RabbitMqUnavailable,
    ProcessFailed and OSError if it cannot begin."""
    site = Exchange(folder, over, messages)
    strikes = draw_strikes(random.Random(seed), list(FAULTS), faults, messages)
    violations = site.violations
    try:
        await site.open()
        await strike_until_drained(outcome, site, FAULTS, strikes, messages, RUN_DEADLINE_S)
        if over is Over.NATS and not violations:
            stored = await site.stored()
            violations += [f"the stream has {one} {count} times" for one, count in stored.items() if count > 1]
    finally:
        await site.close()
    judge(outcome, site.publishers, site.came, violations)
    if not violations:
        violations += [one for gateway in site.gateways for one in gateway.complaints()]
    outcome.violations += [f"--seed {seed}: {one} ({told_strikes(strikes)})" for one in violations]


def judge(outcome: NetworkOutcome, publishers: list[Publisher], came: Counter[str], violations: list[str]) -> None:
    """Counts what came of the messages that the gateway has accepted, and adds a sentence for what was not right."""
    for publisher in publishers:
        outcome.messages += len(publisher.accepted)
        counts = {number: came[publisher.payload(number).decode()] for number in set(publisher.accepted)}
        lost = sorted(number for number, count in counts.items() if not count)
        twice = sorted(number for number, count in counts.items() if count > 1)
        outcome.lost += len(lost)
        outcome.twice += sum(counts[number] - 1 for number in twice)
        violations += named(publisher.name, {"lost": lost, "twice": twice})
