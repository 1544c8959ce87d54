"""Limits on a client: its rate, its share of the store, and the sessions that wait."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway import limits
from gateway.config.schema import ClientConfig, LimitsConfig
from tests.gateway.steps import away, code_of, dropped, publish_numbers, received
from tests.gateway.support import LONG_S, Client, connected, reasons_of, running, until
from wire.codec.packets import Puback, Pubrec, Will
from wire.reasons import QUOTA_EXCEEDED, SERVER_UNAVAILABLE


async def test_a_client_that_publishes_too_fast_waits(tmp_path: Path) -> None:
    async with running(tmp_path, limits=LimitsConfig(messages_per_s=20)) as broker:
        fast, other = await connected(broker, "fast"), await connected(broker, "other", address="127.0.0.2")
        for _ in range(5):
            await other.publish("a")
        started_s = asyncio.get_running_loop().time()
        for _ in range(60):  # a burst of a second, and two seconds more
            await fast.publish("a")
        assert asyncio.get_running_loop().time() - started_s > 1


@pytest.mark.parametrize("name", ["fast", "another"])
async def test_a_client_that_was_too_fast_gains_nothing_by_connecting_again(tmp_path: Path, name: str) -> None:
    """Nor by another client identifier: without a user its address counts."""
    async with running(tmp_path, limits=LimitsConfig(messages_per_s=1)) as broker:
        fast = await connected(broker, "fast")
        for _ in range(300):  # five minutes' worth
            fast.protocol.publish("a", b"", qos=0)
        fast.flush()
        await until(lambda: broker.counters.messages_received[0] == 300, "they have come")
        fast.cut()
        fast, other = await connected(broker, name), await connected(broker, "other", address="127.0.0.2")
        fast.send("a", b"")
        for _ in range(4):
            await other.publish("a")
        assert broker.counters.messages_received[1] == 4


async def test_wills_count_for_the_rate(tmp_path: Path) -> None:
    """An owner that has had many published, each under another client identifier, is not read from meanwhile."""
    async with running(tmp_path, limits=LimitsConfig(messages_per_s=1)) as broker:
        will = Will("a", b"", 1)
        dying = [await connected(broker, f"dies-{number}", session_expiry_s=0, will=will) for number in range(100)]
        for client in dying:
            client.cut()
        await until(lambda: broker.counters.messages_stored == 100, "they are published")
        fast, other = await connected(broker, "fast"), await connected(broker, "other", address="127.0.0.2")
        fast.send("a")
        for _ in range(2):  # it would be read before the other one's
            await other.publish("a")
        assert broker.counters.messages_received[1] == 2


async def test_a_client_that_publishes_too_fast_does_not_keep_the_gateway_from_closing(tmp_path: Path) -> None:
    async with asyncio.timeout(LONG_S), running(tmp_path, limits=LimitsConfig(messages_per_s=1)) as broker:
        fast = await connected(broker, "fast")
        for _ in range(1000):
            fast.protocol.publish("a", b"", qos=0)
        fast.flush()
        await until(lambda: broker.counters.messages_received[0] == 1000, "they have come")


@pytest.mark.parametrize("limit", [{"max_messages": 5}, {"max_bytes": 5 * 101}])
async def test_a_client_that_has_its_share_of_the_store_is_refused_and_others_are_not(
    tmp_path: Path, limit: dict[str, Any]
) -> None:
    """Also under another client identifier: without a user its address counts."""
    async with running(tmp_path, client=ClientConfig(**limit, when_full="reject_incoming")) as broker:
        await away(broker, "#")
        greedy, modest = await connected(broker, "greedy"), await connected(broker, "modest", address="127.0.0.2")
        for number in range(5):
            await greedy.publish("a", b"%d" % number + b" " * 99)
        greedy.send("b", b"x")
        assert (await greedy.expect(Puback)).reason_code == 0x97
        await modest.publish("b", b"5")
        greedy.cut()
        greedy = await connected(broker, "greedy by another name")
        greedy.send("a", b"x", qos=2)
        assert (await greedy.expect(Pubrec)).reason_code == 0x97
        assert await received(broker, 6, address="127.0.0.3") == list(range(6))
        await asyncio.sleep(limits.RETRY_S)  # so often it looks whether there is room
        await greedy.publish("a", b"7")
    assert [row for row in dropped(tmp_path) if row[0] == "rejected"] == [("rejected", "gateway", 0, 0, 1)] * 2


async def test_a_client_that_has_its_share_waits_for_room(tmp_path: Path) -> None:
    async with running(tmp_path, client=ClientConfig(max_messages=5)) as broker:
        await away(broker, "#")
        greedy, modest = await connected(broker, "greedy"), await connected(broker, "modest", address="127.0.0.2")
        await publish_numbers(greedy, 5)
        sent = [greedy.send("a", b"%d" % number) for number in range(5, 10)]
        await modest.publish("a", b"5")
        await greedy.ping()
        subscriber = await connected(broker, "subscriber")
        assert len([await subscriber.receive() for _ in range(11)]) == 11
        assert [(await greedy.expect(Puback)).packet_identifier for _ in sent] == sent


async def test_there_are_only_so_many_sessions_that_wait(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path, limits=LimitsConfig(sessions=2)) as broker:
        for name in ("one", "two"):
            await (await connected(broker, name)).disconnect()
        assert await code_of(Client("three"), broker) == QUOTA_EXCEEDED
        assert await code_of(Client("three", protocol_level=4), broker) == SERVER_UNAVAILABLE
        assert broker.counters.connections_refused == {QUOTA_EXCEEDED: 2}
        why = "quota exceeded (0x97): 2 sessions wait for their clients (limits.sessions)"
        assert reasons_of(caplog).count(why) == 2
        assert await code_of(Client("three", session_expiry_s=0), broker) == 0
        assert await code_of(Client("one"), broker) == 0
        assert await code_of(Client("two", clean_start=True, session_expiry_s=0), broker) == 0
        assert await code_of(Client("three"), broker) == 0
    async with running(tmp_path, limits=LimitsConfig(sessions=1)) as broker:
        assert (await connected(broker, "three")).connack.session_present
        assert await code_of(Client("four"), broker) == QUOTA_EXCEEDED
        four = await connected(broker, "four", session_expiry_s=0)
        assert await code_of(Client("four", clean_start=True), broker) == QUOTA_EXCEEDED
        await four.publish("a", b"still here")
