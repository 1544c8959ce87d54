"""A route to a broker that speaks AMQP 1.0, against a real RabbitMQ."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.message import Message
from gateway.store import quarantine
from tests.gateway.store.support import messages_in
from tests.gateway.support import subscribed
from tests.uplink.foreign.support import amqp_config, drained, rabbitmq, routed
from tests.uplink.support import append, until
from tools.lab.testing.certificates import Authority
from tools.lab.testing.ports import free_port
from tools.lab.testing.rabbitmq import RabbitMq
from wire import properties

proton = pytest.importorskip("proton", reason="python-qpid-proton is not installed")
with_peer = pytest.importorskip("tests.uplink.foreign.amqp_peer").with_peer


ENCRYPTED = """\
default_vhost = plant
listeners.ssl.1 = 127.0.0.1:{port}
ssl_options.certfile = {certificate}
ssl_options.keyfile = {key}
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMq]:
    """One for all tests of the file, since it takes long to start; each has a queue of its own."""
    with rabbitmq(tmp_path_factory.mktemp("amqp")) as found:
        yield found


async def test_messages_go_to_a_queue_in_order_with_their_identity(broker: RabbitMq, tmp_path: Path) -> None:
    config = amqp_config(broker, tmp_path, address="/queue/out", project="site", export_properties=True)
    async with routed(tmp_path / "gateway", config) as (gateway, route):
        await append(gateway.log, range(1, 301), "telemetry/a.b")
        found = {properties.CONTENT_TYPE: "text/plain", properties.USER_PROPERTY: [("unit", "Cel")]}
        await gateway.log.submit([Message("telemetry/last", b"", origin="a", epoch=7, seq=301, properties=found)])
        await drained(route)
    came = await with_peer(broker, "get", "/queue/out", 301)
    assert [bytes(one.body) for one in came[:-1]] == [b"%d" % number for number in range(1, 301)]
    assert [one.id for one in came] == [f"00000007/{number}/a" for number in range(1, 302)]
    assert came[0].subject == "site.telemetry.a/b" and came[0].properties["hf-hops"] == gateway.log.hop
    assert came[-1].content_type == "text/plain" and came[-1].properties["unit"] == "Cel"


async def test_what_a_queue_has_is_stored_and_then_accepted_and_the_rest_set_aside(
    broker: RabbitMq, tmp_path: Path
) -> None:
    incoming = [{"address": "/queue/in", "topic": "commands/#", "qos": 2}]
    config = amqp_config(broker, tmp_path, filters=[], incoming=incoming, import_headers="all")
    await with_peer(
        broker,
        "put",
        "/queue/in",
        proton.Message(b"1", subject="commands.a", id="0000001f/9/server", properties={"k": "v"}, inferred=True),
        proton.Message("two", subject="commands.b", content_type="text/plain"),
        proton.Message({"a": 1}, subject="commands.c"),
        proton.Message(b"4", subject="commands.+", inferred=True),
        proton.Message(b"5", inferred=True),
        proton.Message(b"6", subject="other.a", inferred=True),
        proton.Message(b"7", subject="commands.last", inferred=True),
    )
    async with routed(tmp_path / "gateway", config) as (_, route):
        await until(lambda: route.queue.state.received_messages == 3)
        await until(lambda: len(quarantined(tmp_path)) >= 4)
    stored = [message for _, message in messages_in(tmp_path / "gateway")]
    assert [(one.topic, one.payload) for one in stored] == [
        ("commands/a", b"1"),
        ("commands/b", b"two"),
        ("commands/last", b"7"),
    ]
    assert (stored[0].origin, stored[0].epoch, stored[0].seq, stored[0].qos) == ("server", 31, 9, 2)
    assert [tuple(pair) for pair in stored[0].properties[properties.USER_PROPERTY]] == [("k", "v")]
    reasons = [note.reason for note in quarantined(tmp_path)]
    assert len(reasons) == 4 and "neither bytes nor text" in reasons[0] and "no subject" in reasons[2]
    assert reasons[3] == "no `topic` of [[route.incoming]] matches 'other/a'"
    async with routed(tmp_path / "second", config) as (_, route):  # all of it was accepted, and does not come again
        await with_peer(broker, "put", "/queue/in", proton.Message(b"8", subject="commands.d", inferred=True))
        await until(lambda: route.queue.state.received_messages == 1)
    assert [one.payload for _, one in messages_in(tmp_path / "second")] == [b"8"]


def quarantined(folder: Path) -> list[quarantine.Note]:
    return quarantine.notes_in(folder / "gateway") if (folder / "gateway" / quarantine.FILE).exists() else []


async def test_what_a_gateway_has_sent_does_not_come_back_to_it(broker: RabbitMq, tmp_path: Path) -> None:
    incoming = [{"address": "/queue/circle"}]
    config = amqp_config(broker, tmp_path, address="/queue/circle", incoming=incoming)
    async with routed(tmp_path / "gateway", config) as (gateway, route):
        await append(gateway.log, range(1, 4))
        await drained(route)
        await until(lambda: gateway.counters.messages_returned == 3)
        assert gateway.counters.messages_stored == 3


async def test_servers_are_tried_in_their_order_and_a_wrong_password_is_told(broker: RabbitMq, tmp_path: Path) -> None:
    dead = "amqp://127.0.0.1:1"
    config = amqp_config(broker, tmp_path, servers=[dead, broker.url])
    async with routed(tmp_path / "gateway", config) as (_, route):
        await until(lambda: route.queue.state.server == broker.url)
        assert "127.0.0.1:1" not in route.problem
    config = amqp_config(broker, tmp_path, servers=[dead, broker.url])
    (tmp_path / "guest.password").write_text("wrong")
    async with routed(tmp_path / "second", config) as (_, route):
        await until(lambda: "unauthorized" in route.problem)
        assert "127.0.0.1:1" in route.problem


async def test_a_route_reaches_a_virtual_host_over_tls_and_a_strange_certificate_is_told(tmp_path: Path) -> None:
    authority, port = Authority(tmp_path / "tls"), free_port()
    certificate, key = authority.server()
    with rabbitmq(tmp_path, ENCRYPTED.format(port=port, certificate=certificate, key=key)) as broker:
        place = {"servers": [f"amqps://localhost:{port}"], "virtual_host": "plant"}
        strange = amqp_config(broker, tmp_path, **place)
        async with routed(tmp_path / "second", strange) as (_, route):
            await until(lambda: "CERTIFICATE_VERIFY_FAILED" in route.problem)
        config = amqp_config(broker, tmp_path, **place, tls={"ca": str(authority.path)})
        async with routed(tmp_path / "gateway", config) as (gateway, route):
            await append(gateway.log, range(1, 51))
            await drained(route)
        sent = {f"00000007/{number}/a" for number in range(1, 51)}
        await with_peer(broker, "receive_all", "/queue/telemetry", sent, virtual_host="plant")
        config = amqp_config(broker, tmp_path, **{**place, "virtual_host": "none"}, tls={"ca": str(authority.path)})
        async with routed(tmp_path / "third", config) as (_, route):
            await until(lambda: "unauthorized" in route.problem)


async def test_an_address_that_the_broker_does_not_know_is_told(broker: RabbitMq, tmp_path: Path) -> None:
    config = amqp_config(broker, tmp_path, address="/exchange/none")
    async with routed(tmp_path / "gateway", config) as (gateway, route):
        await append(gateway.log, range(1, 3))
        await until(lambda: "not-found" in (route.problem + route.queue.state.last_error).lower().replace("_", "-"))
        await route.queue.watch.count()
        assert route.queue.state.backlog_messages == 2


async def test_messages_wait_while_the_broker_is_down_and_none_is_lost(tmp_path: Path) -> None:
    with rabbitmq(tmp_path, lasting="/queue/telemetry") as broker:
        config = amqp_config(broker, tmp_path)
        async with routed(tmp_path / "gateway", config) as (gateway, route):
            await append(gateway.log, range(1, 501))
            await until(lambda: route.queue.state.acknowledged_ms > 0)
            await asyncio.to_thread(broker.kill)
            await append(gateway.log, range(501, 551))
            await until(lambda: not route.queue.state.connected)
            broker.start()
            await drained(route)
            await with_peer(broker, "receive_all", "/queue/telemetry", {f"00000007/{n}/a" for n in range(1, 551)})


async def test_more_messages_come_than_a_tag_of_ascii_can_number(broker: RabbitMq, tmp_path: Path) -> None:
    config = amqp_config(broker, tmp_path, filters=[], incoming=[{"address": "/queue/many"}])
    messages = [proton.Message(b"%d" % number, subject="a", inferred=True) for number in range(300)]
    async with routed(tmp_path / "gateway", config) as (gateway, route):
        reader = await subscribed(gateway, "reader", "#")
        await with_peer(broker, "put", "/queue/many", *messages)
        assert [int((await reader.receive()).payload) for _ in range(300)] == list(range(300))
        await until(lambda: route.queue.state.received_messages == 300)
