"""Gateways whose routes lead to each other."""

from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from gateway.broker import Broker
from tests.gateway.support import connected, subscribed, tcp_port, user_property
from tests.gateway.support import running as running_broker
from tests.uplink.support import backlog_is, route_config, serving
from tools.lab.testing.client import Client
from uplink.route import Route
from wire.hops import HOPS_PROPERTY
from wire.identity import IDENTITY_PROPERTY, KEEP, find_user_property
from wire.properties import USER_PROPERTY
from wire.reasons import SUCCESS

RULES = "allow * publish,subscribe #\nallow - identify *\n"


def trusting(folder: Path) -> AbstractAsyncContextManager[Broker]:
    """A gateway whose clients may bring identities."""
    rules = folder.with_name("rules")
    rules.write_text(RULES)
    return running_broker(folder, acl=str(rules))


async def ring(stack: AsyncExitStack, folder: Path, count: int) -> tuple[list[Broker], list[Route]]:
    """Starts ``count`` gateways, each with a route to the next one, and from the last to the first."""
    gateways = [await stack.enter_async_context(trusting(folder / str(number))) for number in range(count)]
    routes = []
    for number, gateway in enumerate(gateways):
        port = tcp_port(gateways[(number + 1) % count])
        routes.append(Route(route_config(port), f"gateway-{number}", gateway.log))
        await stack.enter_async_context(serving(routes[-1]))
    return gateways, routes


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("count", [2, 3])
async def test_each_gateway_of_a_ring_gets_a_message_once_and_then_the_ring_is_silent(
    tmp_path: Path, count: int, qos: int
) -> None:
    async with AsyncExitStack() as stack:
        gateways, routes = await ring(stack, tmp_path, count)
        readers = [await subscribed(gateway, "reader", "#") for gateway in gateways]
        device = await connected(gateways[0], "device")
        for payload in (b"reading", b"marker"):
            device.send("a", payload, qos=qos)
        for reader in readers:
            assert [(await reader.receive()).payload for _ in range(2)] == [b"reading", b"marker"]
        for route in routes:
            await backlog_is(route, 0)
        assert [gateway.counters.messages_stored for gateway in gateways] == [2] * count
        assert [gateway.counters.messages_returned for gateway in gateways] == [0] * count


async def test_a_message_that_comes_back_by_another_broker_is_acknowledged_and_not_stored_again(
    tmp_path: Path,
) -> None:
    async with trusting(tmp_path / "store") as gateway:
        reader = await subscribed(gateway, "reader", "#")
        bridge = await connected(gateway, "bridge", wishes=(KEEP,))
        own_hop = find_user_property(bridge.connack.properties, HOPS_PROPERTY)
        for qos in (0, 1, 2):
            await publish(bridge, f"0000001f/{qos + 1}/device", own_hop, qos)
        await publish(bridge, "0000001f/4/device", "00000007", 1)
        packet = await reader.receive()
        assert (packet.topic, user_property(packet, HOPS_PROPERTY)) == ("0000001f/4/device", "00000007")
        assert gateway.counters.messages_returned == 3


async def test_hops_of_a_client_that_may_not_bring_the_identity_have_no_effect(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as gateway:
        reader = await subscribed(gateway, "reader", "#")
        route = await connected(gateway, "route", wishes=(KEEP,))
        own_hop = find_user_property(route.connack.properties, HOPS_PROPERTY)
        client = await connected(gateway, "client")
        for identity in ("0000001f/1/device", "", "not valid"):
            await publish(client, identity, own_hop, 1)
            assert user_property(await reader.receive(), HOPS_PROPERTY) is None
        assert gateway.counters.messages_returned == 0


async def publish(client: Client, identity: str, hop: str | None, qos: int) -> None:
    """Publishes to the topic that is the identity; waits for the acknowledgement of success."""
    pairs = [(IDENTITY_PROPERTY, identity)] if identity else []
    options: dict[str, Any] = {"properties": {USER_PROPERTY: [(HOPS_PROPERTY, str(hop)), *pairs]}, "retain": False}
    topic = identity or "none"
    if qos == 0:
        client.send(topic, qos=0, **options)
    elif qos == 1:
        assert (await client.publish(topic, **options)).reason_code == SUCCESS
    else:
        await client.publish_once(topic, **options)
