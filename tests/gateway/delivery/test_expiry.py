"""Message expiry where the system's clock is set while messages wait [MQTT-3.3.2-6]."""

import time
from pathlib import Path

import pytest

from tests.gateway.steps import with_publisher
from tests.gateway.support import Client, connected, running, subscribed, tcp_port
from wire.codec.packets import Publish
from wire.properties import MESSAGE_EXPIRY_INTERVAL

LONGEST_S = 0xFFFFFFFF
YEARS_S = 5 * 365 * 86_400.0


class Clock:
    """The system's clock, which a test may set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._time = time.time
        self._offset_s = 0.0
        monkeypatch.setattr(time, "time", lambda: self._time() + self._offset_s)

    def set_back(self, by_s: float) -> None:
        self._offset_s -= by_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def expiring(interval_s: int) -> dict[int, int]:
    return {MESSAGE_EXPIRY_INTERVAL: interval_s}


def interval(packet: Publish) -> object:
    return packet.properties.get(MESSAGE_EXPIRY_INTERVAL)


@pytest.mark.parametrize("interval_s", [60, LONGEST_S])
@pytest.mark.parametrize("qos", [1, 2])
async def test_a_clock_set_back_over_a_restart_makes_no_interval_longer(
    tmp_path: Path, clock: Clock, interval_s: int, qos: int
) -> None:
    async with running(tmp_path) as broker:
        reader = await subscribed(broker, "reader", "#", options=qos, clean_start=False, session_expiry_s=1000)
        await reader.disconnect()
        publisher = await connected(broker, "publisher")
        publish = publisher.publish if qos == 1 else publisher.publish_once
        for _ in range(3):  # from the second on they go the hot path
            await publish("a", properties=expiring(interval_s))
    clock.set_back(YEARS_S)
    async with running(tmp_path) as broker:
        reader = Client("reader", clean_start=False, session_expiry_s=1000, receive_maximum=1)
        await reader.connect(tcp_port(broker))
        assert [interval(await reader.receive()) for _ in range(3)] == [interval_s] * 3


async def test_a_clock_set_back_while_the_gateway_runs_makes_no_interval_longer(tmp_path: Path, clock: Clock) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        reader = await subscribed(broker, "reader", "#", receive_maximum=1)
        for _ in range(3):
            await publisher.publish("a", properties=expiring(LONGEST_S))
        clock.set_back(10)
        assert [interval(await reader.receive()) for _ in range(3)] == [LONGEST_S] * 3


async def test_a_retained_message_meets_a_subscriber_before_its_time(tmp_path: Path, clock: Clock) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        await publisher.publish("a", b"kept", retain=True, properties=expiring(LONGEST_S))
        await publisher.publish("b", b"kept", retain=True, properties=expiring(60))
        clock.set_back(YEARS_S)
        reader = await subscribed(broker, "reader", "#")
        packets = [await reader.receive() for _ in range(2)]
        assert {packet.topic: interval(packet) for packet in packets} == {"a": LONGEST_S, "b": 60}
