"""mosquitto's own bridge to our gateway, with its default configuration."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.gateway.support import Client, joined, running, subscribed, tcp_port, until
from tools.lab.testing.client import UnexpectedEvent
from tools.lab.testing.mosquitto import Mosquitto
from tools.lab.torture.custodians import CUSTODIANS
from wire.codec.packets import Puback, Publish

NAME = "host.site"
STATE = f"$SYS/broker/connection/{NAME}/state"


def bridge(folder: Path, port: int, *topics: str, lines: str = "") -> Mosquitto:
    """The settings without which a bridge does not work, and its name; the rest are defaults."""
    topic_lines = "\n".join(f"topic {topic}" for topic in topics)
    (folder / "mosquitto").mkdir()
    text = f"connection site\nremote_clientid {NAME}\naddress 127.0.0.1:{port}\n{topic_lines}\n{lines}"
    return Mosquitto(folder / "mosquitto", text)


@asynccontextmanager
async def run(mosquitto: Mosquitto) -> AsyncIterator[int]:
    await asyncio.to_thread(mosquitto.start)
    try:
        yield mosquitto.port
    finally:
        await asyncio.to_thread(mosquitto.stop)


@pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv50"])
async def test_it_logs_in_at_once_and_says_when_it_comes_and_goes(
    tmp_path: Path, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running(tmp_path / "store") as broker:
        watcher = await subscribed(broker, "watcher", STATE)
        async with run(bridge(tmp_path, tcp_port(broker), "a/# both 1", lines=f"bridge_protocol_version {version}")):
            states = [(await watcher.receive()).payload]
            while states[-1] != b"1":
                states.append((await watcher.receive()).payload)
            late = await subscribed(broker, "late", "$SYS/#")
            while (packet := await late.receive()).topic != STATE:
                pass
            assert (packet.payload, packet.retain) == (b"1", True)
        assert (await watcher.receive()).payload == b"0"
    clients = [getattr(record, "about", {}).get("client") for record in caplog.records if record.msg == "connected"]
    assert clients.count(NAME) == 1
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    says_better = any("bridge_protocol_version mqttv311" in record.msg for record in caplog.records)
    assert says_better == (version == "mqttv50")


async def test_its_will_says_that_it_was_killed(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as broker:
        watcher = await subscribed(broker, "watcher", STATE)
        mosquitto = bridge(tmp_path, tcp_port(broker), "a/# out 1")
        async with run(mosquitto):
            while (await watcher.receive()).payload != b"1":
                pass
            mosquitto.kill()
            assert (await watcher.receive()).payload == b"0"


async def test_rules_let_it_in_where_they_name_its_state(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    lines = "publish $SYS/broker/connection/%c/state", "publish,subscribe #", "subscribe $SYS/#"
    rules.write_text("".join(f"allow * {line}\n" for line in lines))
    async with running(tmp_path / "store", acl=str(rules)) as broker:
        watcher = await subscribed(broker, "watcher", STATE)
        async with run(bridge(tmp_path, tcp_port(broker), "a/# out 1")):
            while (await watcher.receive()).payload != b"1":
                pass


@pytest.mark.parametrize("version", ["mqttv311", "mqttv50"])
async def test_messages_go_both_ways_once_with_retained_ones_as_published(tmp_path: Path, version: str) -> None:
    async with running(tmp_path / "store") as broker:
        watcher = await subscribed(broker, "watcher", STATE)
        mosquitto = bridge(tmp_path, tcp_port(broker), "a/# both 2", lines=f"bridge_protocol_version {version}")
        async with run(mosquitto) as port:
            while (await watcher.receive()).payload != b"1":
                pass
            here = await Client("here", receive_maximum=1).connect(tcp_port(broker))
            there = await Client("there", receive_maximum=1).connect(port)
            await here.subscribe("a/#", options=2)
            await there.subscribe("a/#", options=2)
            publishers = await Client("up").connect(port), await Client("down").connect(tcp_port(broker))
            for number in range(20):
                for publisher in publishers:
                    await publisher.publish_once(f"a/{number}", b"%d" % number)
            for publisher in publishers:
                await publisher.publish_once("a/end", b"end")
            for client in (here, there):
                came = [await client.receive() for _ in range(42)]
                assert sorted(int(packet.payload) for packet in came if packet.payload != b"end") == sorted(
                    list(range(20)) * 2
                )
            # Messages that went round would come before what is published now.
            await publishers[1].publish("a/kept", b"kept", retain=True)
            assert (await there.receive()).payload == b"kept"
            assert (await here.receive()).payload == b"kept"
            late = await joined(port, "late", "a/kept")
            packet = await late.receive()
            assert (packet.payload, packet.retain) == (b"kept", True)


PROBE = -1
interruptions = contextlib.suppress(OSError, UnexpectedEvent)  # no broker, or one that goes before it has answered


class Way:
    """One direction: a publisher at one broker, and a subscriber with a durable session at the other."""

    def __init__(self, topic: str, source: int, target: int) -> None:
        self._topic = topic
        self._source = source
        self._target = target
        self._sent = 0
        self.received: list[int] = []
        self.is_subscribed = asyncio.Event()

    async def publish(self, count: int) -> None:
        """Publishes this many more messages, and each again until it is acknowledged."""
        last = self._sent + count
        while self._sent < last:
            with interruptions:
                publisher = await Client(f"{self._topic}-from").connect(self._source)
                while self._sent < last and await self._publish_one(publisher):
                    self._sent += 1
            await asyncio.sleep(0.05)

    async def _publish_one(self, publisher: Client) -> bool:
        publisher.send(f"{self._topic}/{self._sent % 3}", b"%d" % self._sent, qos=1)
        return isinstance(await publisher.event(), Puback)

    async def receive(self) -> None:
        """Receives messages until it is cancelled; connects again when the broker has ended."""
        while True:
            self.is_subscribed.clear()
            with interruptions:
                subscriber = await Client(f"{self._topic}-to").connect(self._target)
                await self._subscribe(subscriber)
                self.is_subscribed.set()
                while isinstance(event := await subscriber.event(), Publish):
                    self.received.append(int(event.payload))
                    subscriber.acknowledge(event)
            await asyncio.sleep(0.05)

    async def _subscribe(self, subscriber: Client) -> None:
        if not subscriber.connack.session_present:
            await subscriber.subscribe(f"{self._topic}/#")

    async def open(self) -> None:
        """Returns when a published message has come over the bridge."""
        await self.is_subscribed.wait()
        publisher = await Client(f"{self._topic}-from").connect(self._source)
        while PROBE not in self.received:
            await publisher.publish(f"{self._topic}/probe", b"%d" % PROBE)
            await asyncio.sleep(0.1)

    async def settle(self) -> None:
        """Returns when every acknowledged message has come over the bridge."""
        await until(lambda: len({*self.received} - {PROBE}) == self._sent, f"all of {self._topic}")


@pytest.mark.parametrize("version", ["mqttv311", "mqttv50"])
async def test_nothing_that_was_acknowledged_is_missing_over_kills_of_both(tmp_path: Path, version: str) -> None:
    """mosquitto acknowledges before it writes: it is stopped during traffic, and killed only when it is idle."""
    gateway = CUSTODIANS["gateway"](tmp_path, "")
    await gateway.up()
    lines = f"restart_timeout 1\nautosave_interval 1\nautosave_on_changes false\nbridge_protocol_version {version}"
    mosquitto = bridge(tmp_path, gateway.port, "up/# out 1", "down/# in 1", lines=lines)
    async with run(mosquitto) as port, asyncio.TaskGroup() as group:
        ways = Way("up", port, gateway.port), Way("down", gateway.port, port)
        receiving = [group.create_task(way.receive()) for way in ways]
        for way in ways:
            await way.open()

        async def restart() -> None:
            await asyncio.to_thread(mosquitto.stop)
            await asyncio.to_thread(mosquitto.start)

        for interrupt in (gateway.interrupt, restart, gateway.interrupt):
            await asyncio.gather(*(way.publish(200) for way in ways), interrupt())
        for way in ways:
            await way.settle()
        mosquitto.kill()
        await asyncio.to_thread(mosquitto.start)
        await asyncio.gather(*(way.is_subscribed.wait() for way in ways))
        await asyncio.gather(*(way.publish(200) for way in ways))
        for way in ways:
            await way.settle()
        for task in receiving:
            task.cancel()
    await gateway.down()
    for way in ways:
        assert sorted(set(way.received)) == [PROBE, *range(800)]
