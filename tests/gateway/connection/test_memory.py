"""What a connection costs. An object of CPython with more than 29 attributes gets a dictionary of its own, 1.3 kB."""

import gc
from pathlib import Path

from tests.gateway.support import running, tcp_port
from tools.lab.testing.client import Client
from wire.connection.client import ClientConnection

ATTRIBUTES_MOST = 29


def own_objects() -> list[object]:
    # A type of a library that another test has imported may have a descriptor in place of its module's name.
    return [one for one in gc.get_objects() if str(type(one).__module__).startswith(("gateway.", "wire."))]


async def test_no_object_of_a_connection_has_too_many_attributes_for_shared_keys(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        before = {id(one) for one in own_objects()}
        client = await Client("counted").connect(tcp_port(broker))
        await client.subscribe("a")
        made = [one for one in own_objects() if id(one) not in before and not isinstance(one, ClientConnection)]
        sizes = {type(one).__qualname__: len(vars(one)) for one in made if hasattr(one, "__dict__")}
        await client.disconnect()
    assert {"BulkServerConnection", "RunCursor"} <= sizes.keys()
    assert {name: size for name, size in sizes.items() if size > ATTRIBUTES_MOST} == {}


async def test_a_client_that_only_publishes_has_nothing_that_serves_subscribers(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        before = {id(one): one for one in own_objects()}
        client = await Client("counted").connect(tcp_port(broker))
        await client.publish("a", b"1", qos=1)
        made = {type(one).__qualname__ for one in own_objects() if id(one) not in before}
        await client.subscribe("a")
        at_subscribe = {type(one).__qualname__ for one in own_objects() if id(one) not in before} - made
        await client.disconnect()
    assert {"Client", "Intake", "Sender"} <= made
    assert {"LiveHold", "MulticastMember", "RetainedCursor", "Subscribing"} <= at_subscribe
