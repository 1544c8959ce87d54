"""Subscribers that are away, and the QoS with which messages cross a network."""

from pathlib import Path

import pytest

from tests.gateway.support import until
from tests.uplink.network.sites import message_to
from tests.uplink.network.test_chain import chain

DIALLING = pytest.mark.parametrize("dialling", ["outer", "middle"])
KEPT = {"session_expiry_s": 100_000, "clean_start": False}


@DIALLING
async def test_a_durable_subscriber_that_returns_gets_all_though_each_gateway_was_restarted_meanwhile(
    tmp_path: Path, dialling: str
) -> None:
    a, m, b = chain(tmp_path, dialling)
    async with a, m, b:
        reader = await b.client("reader", "orders/+", **KEPT)
        await a.wants("orders/+")
        await reader.disconnect()
        number = 0
        for away in (b, m, a):
            await away.stop()
            if away is a:
                await away.start()
            device = await a.client(f"device {number}")
            for _ in range(20):
                await device.publish_once("orders/1", b"%d" % number)
                number += 1
            if away is not a:
                await away.start()
            await a.wants("orders/+")
        reader = await b.client("reader", **KEPT)
        assert [int((await message_to(reader)).payload) for _ in range(number)] == list(range(number))
        reader.send("orders/end", qos=1)
        assert (await message_to(reader)).topic == "orders/end"
        assert b.broker.counters.messages_duplicate == 0


@DIALLING
async def test_the_chain_of_a_subscriber_that_is_not_durable_goes_with_it(tmp_path: Path, dialling: str) -> None:
    a, m, b = chain(tmp_path, dialling)
    async with a, m, b:
        reader = await b.client("reader", "orders/+", session_expiry_s=0)
        await a.wants("orders/+")
        reader.cut()
        await a.wants()
        await m.wants()
        device = await a.client("device")
        assert (await device.publish("orders/1")).reason_code == 0x10
        assert m.broker.counters.messages_received[1] == 0


@DIALLING
async def test_a_chain_goes_that_ends_while_a_gateway_in_between_is_down(tmp_path: Path, dialling: str) -> None:
    a, m, b = chain(tmp_path, dialling)
    async with a, m, b:
        reader = await b.client("reader", "orders/+", session_expiry_s=0)
        await a.wants("orders/+")
        await m.stop()
        reader.cut()
        await until(lambda: not b.broker.sessions.get("reader"), "the session has ended")
        assert a.wanted_by_neighbours() == {"orders/+"}
        await m.start()
        await a.wants()
        await m.wants()


@DIALLING
@pytest.mark.parametrize("asked", [0, 1, 2])
async def test_a_message_crosses_at_the_publishers_qos_and_its_subscriber_gets_what_it_asked_for(
    tmp_path: Path, dialling: str, asked: int
) -> None:
    a, m, b = chain(tmp_path, dialling)
    async with a, m, b:
        reader = await b.client("reader", "orders", options=asked)
        await a.wants("orders")
        device = await a.client("device")
        for qos in (0, 1, 2):
            device.send("orders", b"%d" % qos, qos=qos)
            packet = await message_to(reader)
            assert (packet.payload, packet.qos) == (b"%d" % qos, min(qos, asked))
        received = [site.broker.counters.messages_received for site in (m, b)]
        await until(lambda: [sum(one) for one in received] == [3, 3], "all are counted")
        assert [list(one) for one in received] == [[1, 1, 1], [1, 1, 1]]


@DIALLING
async def test_what_waits_stays_when_the_interest_in_it_is_put_in_other_words(tmp_path: Path, dialling: str) -> None:
    """A wider filter takes the place of the narrower one while messages wait for it."""
    a, m, b = chain(tmp_path, dialling)
    async with a, m, b:
        reader = await b.client("reader", "orders/1", **KEPT)
        await a.wants("orders/1")
        await m.stop()
        device = await a.client("device")
        for number in range(10):
            await device.publish("orders/1", b"%d" % number)
        await reader.subscribe("orders/+", options=2)
        await m.start()
        await a.wants("orders/+")
        found = [int((await message_to(reader)).payload) for _ in range(10)]
        assert found == list(range(10))
        await reader.unsubscribe("orders/+")
        await a.wants("orders/1")
        await m.stop()
        await device.publish("orders/1", b"10")
        await reader.unsubscribe("orders/1")
        await reader.subscribe("orders/#", options=2)
        await m.start()
        await a.wants("orders/#")
        await device.publish("orders/2", b"11")
        assert (await message_to(reader)).payload in (b"10", b"11")
