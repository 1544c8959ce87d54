"""What a broker that speaks AMQP 1.0 may make a gateway keep or do; it is ours, as a real one keeps to its limits."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.gateway.support import LONG_S, connected, subscribed
from tests.uplink.foreign.support import FAST, drained, routed
from tests.uplink.support import until
from tools.lab.testing.ports import free_port
from tools.lab.torture.attacks.amqp import Broker, cut, send_to_each
from uplink.foreign.config import AmqpConfig
from uplink.foreign.transport import Arrival
from wire.properties import CONTENT_TYPE

proton = pytest.importorskip("proton", reason="python-qpid-proton is not installed")

from uplink.foreign.amqp.connection import MESSAGE_MAX, Amqp  # noqa: E402 - it needs the library


def config(port: int, **more: object) -> AmqpConfig:
    incoming = [{"address": "/queue/in", "topic": "#"}]
    keys = {"servers": [f"amqp://127.0.0.1:{port}"], "address": "/queue/out", "filters": [], "incoming": incoming}
    return msgspec.convert({"kind": "amqp", **keys, **FAST, "name": "amqp", **more}, AmqpConfig)


def message(body: bytes) -> bytes:
    return bytes(proton.Message(body=body, subject="a", inferred=True).encode())


async def test_a_message_that_is_too_large_stays_there_and_the_next_one_comes(tmp_path: Path) -> None:
    port, large = free_port(), message(bytes(MESSAGE_MAX))

    def both(_broker: Broker) -> AsyncIterator[bytes]:
        return cut(iter([large, message(b"next")]))

    async with routed(tmp_path, config(port)) as (broker, route):
        subscriber = await subscribed(broker, "subscriber", "#")
        serving = asyncio.create_task(send_to_each(port, both))
        assert (await subscriber.receive()).payload == b"next"
        told = f"a message at '/queue/in' has more than {MESSAGE_MAX} bytes, and stays there"
        await until(lambda: route.queue.state.receive_problem == told)
        await stopped(serving)


class Full:
    """An importer that grants once, and then has no room."""

    def __init__(self) -> None:
        self._grants = iter([None])

    async def wait_for_room(self) -> None:
        if next(self._grants, "none") is not None:
            await asyncio.get_running_loop().create_future()

    def take(self, arrivals: Sequence[Arrival]) -> None:
        pass

    def highest_known(self, origin: str, epoch: int) -> int:
        return 0


async def test_a_broker_that_sends_more_than_it_may_is_left() -> None:
    port, small = free_port(), message(b"")
    serving = asyncio.create_task(send_to_each(port, lambda _: cut(itertools.repeat(small))))
    await until(lambda: is_open(port))
    connection = Amqp(config(port), "gateway-1", (None, None))
    await connection.connect()
    receiving = asyncio.create_task(connection.receive(Full()))
    why = await asyncio.wait_for(connection.ended, LONG_S)
    assert why == "the broker sends more messages than it may"
    await connection.close()
    await stopped(receiving, serving)


def is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


async def stopped(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_a_message_with_a_binary_identifier_and_without_a_content_type_has_neither(tmp_path: Path) -> None:
    port = free_port()
    binary = bytes(proton.Message(id=b"\xff\xfe\x01", body=b"binary", subject="a", inferred=True).encode())
    async with routed(tmp_path, config(port, import_headers="type")) as (broker, _):
        subscriber = await subscribed(broker, "subscriber", "#")
        serving = asyncio.create_task(send_to_each(port, lambda _: cut(iter([binary]))))
        came = await subscriber.receive()
        assert came.payload == b"binary"
        assert CONTENT_TYPE not in came.properties
        await stopped(serving)


PROPERTIES = bytes(proton.Message(subject="a", properties={"b": "c"}, body=b"d", inferred=True).encode())
A_MAP, A_LIST = b"\x53\x74\xd1", b"\x53\x74\xd0"


async def test_a_message_that_cannot_be_read_goes_to_the_quarantine_and_the_next_one_comes(tmp_path: Path) -> None:
    port = free_port()
    wrong = PROPERTIES.replace(A_MAP, A_LIST)
    assert wrong != PROPERTIES
    async with routed(tmp_path, config(port)) as (broker, route):
        subscriber = await subscribed(broker, "subscriber", "#")
        serving = asyncio.create_task(send_to_each(port, lambda _: cut(iter([wrong, message(b"next")]))))
        assert (await subscriber.receive()).payload == b"next"
        assert route.queue.state.fault == ""
        await stopped(serving)


async def test_what_the_broker_accepts_has_gone_and_what_it_rejects_is_set_aside(tmp_path: Path) -> None:
    outcomes = {b"good": proton.Delivery.ACCEPTED, b"bad": proton.Delivery.REJECTED}

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await Taking(reader, writer, outcomes).let_in()  # for ever, as it has nothing to send
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with routed(tmp_path, config(port, filters=["#"], incoming=[])) as (broker, route):
            publisher = await connected(broker, "publisher")
            for payload in (b"good", b"bad", b"good"):
                await publisher.publish("a", payload)
            await drained(route)
            (refused,) = await route.queue.refusals.messages()
            assert (refused.bytes, refused.reason) == (3, f"the broker answers {proton.Delivery.REJECTED}")


class Taking(Broker):
    """A broker that takes messages, with an outcome for each payload."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, outcomes: dict[bytes, object]
    ) -> None:
        super().__init__(reader, writer)
        self._outcomes = outcomes

    def _answer(self, event: Any) -> None:
        super()._answer(event)
        if event.type == proton.Event.DELIVERY and event.delivery.readable and not event.delivery.partial:
            taken = proton.Message()
            taken.decode(event.delivery.link.recv(event.delivery.pending))
            event.delivery.update(self._outcomes[bytes(taken.body)])
            event.delivery.settle()
