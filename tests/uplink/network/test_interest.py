"""Which filters a neighbour is told, beside those of the chain."""

from pathlib import Path

import pytest

from gateway.config.network import NetworkConfig
from tests.gateway.support import until
from tests.uplink.network.sites import Site, all_to, message_to
from tests.uplink.network.test_chain import chain
from tools.lab.testing.client import Client

CLIENTS, STAYS = 200, 20  # how many come, and each of these stays
DIALLING = pytest.mark.parametrize("dialling", ["outer", "middle"])


def pair(folder: Path, dialling: str, **keys: object) -> tuple[Site, Site]:
    """Gateways a and b with a link; the keys are b's."""
    a, b = Site(folder, "a"), Site(folder, "b", **keys)
    if dialling == "outer":
        a.dial(b.port, "b")
    else:
        b.dial(a.port, "a")
    return a, b


@DIALLING
async def test_a_summary_is_always_told_and_stands_for_what_it_covers(tmp_path: Path, dialling: str) -> None:
    a, b = pair(tmp_path, dialling, network=NetworkConfig(summary=("site-b/#",)))
    async with a, b:
        await a.wants("site-b/#")
        reader = await b.client("reader", "site-b/1", "other")
        await a.wants("site-b/#", "other")
        device = await a.client("device")
        for topic in ("site-b/2", "site-b/1", "other"):
            await device.publish(topic)
        assert [(await message_to(reader)).topic for _ in range(2)] == ["site-b/1", "other"]
        assert b.broker.counters.messages_received[1] == 3
        await reader.unsubscribe("site-b/1", "other")
        await a.wants("site-b/#")


@DIALLING
async def test_topics_of_the_gateway_itself_are_not_told(tmp_path: Path, dialling: str) -> None:
    a, b = pair(tmp_path, dialling)
    async with a, b:
        await b.client(
            "reader", "$SYS/#", "$SYS/broker/version", "$share/g/$SYS/#", "$share/g/$share/h/x", "#", "other"
        )
        await a.wants("#")


@DIALLING
async def test_a_shared_subscription_counts_as_its_filter_and_each_message_goes_to_one_member(
    tmp_path: Path, dialling: str
) -> None:
    a, m, b = chain(tmp_path, dialling)
    async with a, m, b:
        one = await b.client("one", "$share/g/jobs/+")
        other = await b.client("other", "$share/g/jobs/+", "$share/h/jobs/1", session_expiry_s=0)
        await a.wants("jobs/+")
        device = await a.client("device")
        for number in range(20):
            await device.publish("jobs/2", b"%d" % number)
        await until(lambda: b.broker.counters.messages_received[1] == 20, "all are here")
        found = [int(packet.payload) for client in (one, other) for packet in await all_to(client)]
        assert sorted(found) == list(range(20))
        await one.unsubscribe("$share/g/jobs/+")
        await a.wants("jobs/+")
        await other.disconnect()
        await a.wants()


@DIALLING
@pytest.mark.parametrize("qos", [1, 2])
async def test_a_message_on_its_way_when_the_last_subscriber_goes_holds_nothing_up(
    tmp_path: Path, dialling: str, qos: int
) -> None:
    a, b = pair(tmp_path, dialling)
    async with a, b:
        device = await a.client("device")
        reader = await b.client("reader", "steady")
        await a.wants("steady")
        for number in range(50):
            passing = await b.client(f"passing {number}", "passing", session_expiry_s=0)
            await a.wants("steady", "passing")
            device.send("passing", b"", qos=qos)
            passing.cut()
            device.send("passing", b"", qos=qos)
            device.send("steady", b"%d" % number, qos=qos)
            packet = await message_to(reader)
            assert (packet.topic, packet.payload) == ("steady", b"%d" % number)
        await a.wants("steady")
        assert [status.stands for status in (*a.routes.status(), *b.routes.status())] == [False]


@pytest.mark.parametrize("first", [1, 2])
async def test_what_is_always_carried_waits_for_a_subscriber_and_holds_up_what_comes_behind_it(
    tmp_path: Path, first: int
) -> None:
    a, b = Site(tmp_path, "a"), Site(tmp_path, "b")
    a.dial(b.port, "b", filters=("always/#",))
    async with a, b:
        reader = await b.client("reader", "steady")
        await a.wants("steady")
        device = await a.client("device")
        device.send("always/1", b"first", qos=first)
        # What is sent before the answer comes is not held up, and may come before a message that goes again.
        await until(lambda: a.routes.status()[0].stands, "the route waits for a subscriber")
        device.send("steady", b"1", qos=3 - first)
        device.send("always/1", b"second", qos=3 - first)
        device.send("steady", b"2", qos=first)
        late = await b.client("late", "always/#")
        assert [(await message_to(late)).payload for _ in range(2)] == [b"first", b"second"]
        assert [(await message_to(reader)).payload for _ in range(2)] == [b"1", b"2"]


@DIALLING
async def test_after_hundreds_of_clients_have_come_and_gone_exactly_what_the_rest_wants_is_told(
    tmp_path: Path, dialling: str, seed: int
) -> None:
    a, m, b = chain(tmp_path, dialling)
    async with a, m, b:
        device = await a.client("device")
        steady = await b.client("steady", "steady")
        await a.wants("steady")
        staying: list[Client] = []
        for number in range(CLIENTS):
            kept = number % STAYS == 0
            client = Client(f"client-{number}", session_expiry_s=1000 if kept else 0)
            await client.connect(b.port)
            await client.subscribe(f"common/{number % 7}", f"own/{number}", options=number % 3)
            device.send("steady", b"%d" % number, qos=1)
            device.send(f"own/{number}", b"", qos=0)
            if kept:
                staying.append(client)
            elif number % 2:
                client.cut()
            else:
                await client.unsubscribe(f"own/{number}") if number % 4 else None
                client.cut()
        wanted = {f"common/{number % 7}" for number in range(0, CLIENTS, STAYS)}
        wanted |= {f"own/{number}" for number in range(0, CLIENTS, STAYS)} | {"steady"}
        await a.wants(*wanted)
        await m.wants(*wanted)
        assert [int((await message_to(steady)).payload) for _ in range(CLIENTS)] == list(range(CLIENTS))
