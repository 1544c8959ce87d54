"""What a run tortures: the gateways of a plan, the lines between them, publishers and subscribers."""

import asyncio
import contextlib
import random
from pathlib import Path
from typing import NamedTuple

from tools.lab.testing.client import Client, UnexpectedEvent
from tools.lab.testing.gateway import Gateway
from tools.lab.testing.mosquitto import Mosquitto
from tools.lab.testing.network_link import NetworkLink
from tools.lab.torture.network.plan import Link, Plan
from tools.lab.torture.network.subscriber import PROBE, Subscriber
from tools.lab.torture.publisher import EPOCH, MARKERS, TOPIC, Publisher
from tools.lab.torture.site import Site
from wire.errors import WireError

PUBLISHERS = (2, 4)
DURABLE = (2, 4)
PROBE_EVERY_S, PROBE_DEADLINE_S = 0.1, 30.0
MARKER_DEADLINE_S = 60.0
RULES = "".join(f"allow * {rule}\n" for rule in ("connect *", "identify *", "neighbour *", "publish,subscribe #"))
ALL = f'["{TOPIC}/#", "{MARKERS}/#"]'
SUMMARY = f"[network]\nsummary = {ALL}\n"
NEIGHBOUR = """\
[[neighbour]]
name = "g{dialler}"
{agreed}"""
ROUTE = """\
[[route]]
name = "{name}"
broker = "mqtt://127.0.0.1:{port}"
{more}keep_alive_s = 1
retry_interval_s = 2
backoff_shortest_ms = 20
backoff_longest_ms = 200
[route.neighbour]
{agreed}"""
AGREED = 'zone = "{zone}"\nhops = "{hops}"\nmode = "{mode}"\n'


class Gap(NamedTuple):
    """A range of the table `dropped` of a gateway: why, and which messages of an origin."""

    reason: str
    origin: str
    first: int
    last: int


def new_gateway(folder: Path, number: int) -> Gateway:
    """Returns a gateway of the network, with a folder of its own."""
    name = f"g{number}"
    (folder / name).mkdir()
    return Gateway(folder / name, name=name, rules=RULES)


class Network(Site):
    """One run's processes and files; `open` starts them, `close` ends them.

    Args:
        folder: an empty folder.
        plan: the network.
        messages: how many all publishers send together.
        chance: draws where publishers and subscribers are, and what they want.

    Attributes:
        lines: by link, the lines that its route knows, in their order.
        broker: the ordinary broker, None without one.
        at: by the publisher's name, the number of its gateway.
        has_changed_ways: whether a circle has been closed, so that messages have gone another way.
    """

    def __init__(self, folder: Path, plan: Plan, messages: int, chance: random.Random) -> None:
        super().__init__()
        self.plan = plan
        self.gateways = [new_gateway(folder, number) for number in range(plan.count)]
        self.lines = {link: [self._line(link.dialled) for _ in range(1 + link.is_double)] for link in plan.links}
        self.broker = Mosquitto(folder) if plan.between else None
        self.broker_lines = [NetworkLink("127.0.0.1", self.broker.port) for _ in range(2)] if self.broker else []
        self.processes = {"the broker": self.broker} if self.broker else {}
        self.processes |= {gateway.name: gateway for gateway in self.gateways}
        lines = [*self.broker_lines, *(line for lines in self.lines.values() for line in lines)]
        self.links = {f"line {number}": line for number, line in enumerate(lines)}
        self.has_changed_ways = False
        self.subscribers: list[Subscriber] = []
        self.at: dict[str, int] = {}
        self._messages = messages
        self._chance = chance
        self._probes = 0
        self._tasks: list[asyncio.Task[None]] = []
        count = chance.randint(*PUBLISHERS)
        for number in range(count):
            gateway = chance.randrange(plan.count)
            share = messages // count + (number < messages % count)
            self.publishers.append(Publisher(f"p{number}", self.gateways[gateway].port, chance.choice((1, 2)), share))
            self.at[f"p{number}"] = gateway

    def _line(self, gateway: int) -> NetworkLink:
        return NetworkLink("127.0.0.1", self.gateways[gateway].port)

    async def open(self) -> None:
        """Starts all, and makes some durable subscriptions. Raises ProcessFailed, OSError."""
        added = [line for link, lines in self.lines.items() if link.is_added for line in lines]
        for line in self.links.values():
            if line not in added:
                await line.open()
        if self.broker is not None:
            self.broker.start()
        for number, gateway in enumerate(self.gateways):
            gateway.configure(self._tables(number))
            gateway.start()
        for gateway in self.gateways:
            await asyncio.to_thread(gateway.wait_ready)
        count = self._chance.randint(*DURABLE)
        await asyncio.gather(*(self.subscribe(self._chance, is_durable=True) for _ in range(count)))

    def _tables(self, number: int) -> str:
        """Returns the tables of a gateway's links."""
        tables = []
        if self.plan.between and number in self.plan.between:
            port = self.broker_lines[self.plan.between.index(number)].port
            route = ROUTE.format(name="broker", port=port, more=f"filters = {ALL}\n", agreed="")
            tables += [SUMMARY, route]
        for link, lines in self.lines.items():
            hops = "one" if link.zone.is_one_hop else "multi"
            agreed = AGREED.format(zone=link.zone.name, hops=hops, mode=link.mode)
            if number == link.dialled:
                tables.append(NEIGHBOUR.format(dialler=link.dialler, agreed=agreed))
            elif number == link.dialler:
                more = "".join(f'fallbacks = ["mqtt://127.0.0.1:{line.port}"]\n' for line in lines[1:])
                agreed = f'name = "g{link.dialled}"\n{agreed}'
                name = f"to-g{link.dialled}"
                tables.append(ROUTE.format(name=name, port=lines[0].port, more=more, agreed=agreed))
        return "".join(tables)

    async def subscribe(self, chance: random.Random, is_durable: bool) -> Subscriber:
        """Makes a subscription of some messages at a gateway, and returns it when its interest is known at each
        gateway with a publisher from which messages come."""
        gateway = chance.randrange(self.plan.count)
        names = [publisher.name for publisher in self.publishers]
        filters = chance.choice(([f"{TOPIC}/#"], [f"{TOPIC}/{chance.choice(names)}"], [f"{TOPIC}/+", f"{TOPIC}/p0"]))
        qos = chance.choice((1, 2, 2))
        name = f"s{len(self.subscribers)}"
        filters = [*filters, f"{MARKERS}/#"]
        one = Subscriber(name, gateway, self.gateways[gateway].port, filters, qos, is_durable)
        self.subscribers.append(one)
        self._tasks.append(asyncio.create_task(one.run()))
        await asyncio.wait_for(one.is_subscribed.wait(), PROBE_DEADLINE_S)
        await asyncio.gather(*(self._begin(one, publisher) for publisher in self.sources(one)))
        return one

    async def _begin(self, subscriber: Subscriber, publisher: Publisher) -> None:
        """Notes from which message of a publisher on a subscriber has to get all: its interest was known before."""
        if await self._is_probed(subscriber, publisher):
            subscriber.since[publisher.name] = publisher.sent + 1

    def sources(self, subscriber: Subscriber) -> list[Publisher]:
        """Returns the publishers whose messages a subscriber has to get."""
        return [
            publisher
            for publisher in self.publishers
            if self.wants(subscriber, publisher) and subscriber.gateway in self.plan.ways(self.at[publisher.name])
        ]

    def wants(self, subscriber: Subscriber, publisher: Publisher) -> bool:
        """Whether a filter of a subscriber matches the messages of a publisher."""
        return bool({f"{TOPIC}/#", f"{TOPIC}/+", publisher.topic} & set(subscriber.filters))

    def way(self, subscriber: Subscriber, publisher: Publisher) -> list[Link | None]:
        """Returns the links over which a publisher's messages come to a subscriber; None is the ordinary broker."""
        return self.plan.ways(self.at[publisher.name])[subscriber.gateway]

    async def _is_probed(self, subscriber: Subscriber, publisher: Publisher) -> bool:
        """Returns when a probe has come that matches the filters of a subscriber; False if it is over, or none came."""
        self._probes += 1
        payload = PROBE + f"{self._probes}".encode()
        port = self.gateways[self.at[publisher.name]].port
        has_ended = asyncio.Event()
        publishing = asyncio.create_task(_publish_again(port, publisher.topic, payload, has_ended))
        try:
            async with asyncio.timeout(PROBE_DEADLINE_S):
                return await subscriber.probed(payload)
        except TimeoutError:
            way = [link.name if link else "broker" for link in self.way(subscriber, publisher)]
            self.violations.append(f"no probe of {publisher.name} came to {subscriber.name} by {way or 'its gateway'}")
            return False
        finally:
            has_ended.set()
            await publishing

    def gaps(self) -> list[Gap]:
        """Returns what the stores of the gateways, which do not run, say was dropped."""
        query = "SELECT reason, origin, first, last FROM dropped WHERE epoch = ?"
        return [Gap(*row) for gateway in self.gateways for row in gateway.select(query, EPOCH)]

    async def drained(self) -> None:
        """Returns when a marker of each publisher has come to each subscriber, behind all else; notes what has not."""
        for link_lines in self.lines.values():
            for line in link_lines:
                if line.is_cut:
                    await line.open()
        ways = [(one, publisher) for one in self.subscribers if not one.is_over for publisher in self.sources(one)]
        for subscriber in self.subscribers:
            subscriber.back()
        await asyncio.gather(*(self._is_probed(*way) for way in ways))  # an active-passive link drops until it is up
        try:
            async with asyncio.timeout(MARKER_DEADLINE_S):
                for publisher in self.publishers:
                    await publisher.mark()
                while self._without_marker():
                    await asyncio.sleep(PROBE_EVERY_S)
        except (OSError, TimeoutError, UnexpectedEvent) as error:
            told = ", ".join(self._without_marker())
            self.violations.append(f"a marker did not come: {told}: {error!r}")

    def _without_marker(self) -> list[str]:
        return [
            f"{publisher.name} to {one.name}"
            for one in self.subscribers
            if not one.is_over
            for publisher in self.sources(one)
            if not any(came.origin == publisher.name and came.topic.startswith(MARKERS) for came in one.came)
        ]

    async def close(self) -> None:
        """Ends the subscribers, all processes and all lines."""
        for subscriber in self.subscribers:
            subscriber.end()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await super().close()


async def _publish_again(port: int, topic: str, payload: bytes, has_ended: asyncio.Event) -> None:
    """Publishes a message again and again, over as many connections as it takes, until an event."""
    while not has_ended.is_set():
        client = Client("", clean_start=True, session_expiry_s=0, keep_alive_s=0)
        with contextlib.suppress(OSError, UnexpectedEvent, TimeoutError, WireError):
            await client.connect(port)
            while not has_ended.is_set():
                await client.publish(topic, payload)
                await asyncio.sleep(PROBE_EVERY_S)
        client.cut()
        await asyncio.sleep(PROBE_EVERY_S)
