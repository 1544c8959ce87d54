"""The retained messages that exist when a route begins, or when its filters become wider, go to its next broker."""

from pathlib import Path

from gateway.message import Message
from gateway.store import MessageLog, retained
from tests.support.scripted_broker import ScriptedBroker, scripted_broker, silent
from tests.uplink.support import append, opened, route_config, running, until
from tests.uplink.test_reload import steered
from uplink.route import Route


async def keep(log: MessageLog, topic: str, payload: bytes, qos: int = 1) -> None:
    """Stores a message that becomes the retained one of its topic."""
    message = Message(topic, payload, qos=qos, retain=True, origin="a", epoch=7, seq=len(payload) + log.head)
    await log.submit([message, retained.Keep(message)])


def came(broker: ScriptedBroker) -> list[tuple[str, bytes, bool]]:
    return [(one.topic, one.payload, one.retain) for publishes in broker.publishes for one in publishes]


async def test_a_new_route_sends_them_once_and_what_comes_later_as_it_comes(tmp_path: Path) -> None:
    async with scripted_broker() as broker:
        config = route_config(broker.port, filters=["telemetry/#", "b"])
        async with opened(tmp_path) as log:
            await keep(log, "telemetry/a", b"old")
            await keep(log, "telemetry/a", b"kept")
            await keep(log, "b", b"kept too", qos=2)
            await keep(log, "other", b"of no filter")
            async with running(log, config):
                await until(lambda: len(came(broker)) == 2)
                await append(log, range(1, 2))
                await until(lambda: len(came(broker)) == 3)
        expected = [("b", b"kept too", True), ("telemetry/a", b"1", False), ("telemetry/a", b"kept", True)]
        assert sorted(came(broker)) == expected
        async with opened(tmp_path) as log, running(log, config):
            await append(log, range(2, 3))
            await until(lambda: len(came(broker)) == 4)
        assert came(broker)[-1] == ("telemetry/a", b"2", False)


async def test_a_restart_before_they_are_acknowledged_sends_them_again(tmp_path: Path) -> None:
    async with scripted_broker(puback=silent) as broker:
        config = route_config(broker.port, filters=["#"])
        async with opened(tmp_path) as log:
            for number in range(3):
                await keep(log, f"a/{number}", b"kept")
            async with running(log, config):
                await until(lambda: len(came(broker)) == 3)
        broker.puback = lambda _: 0
        async with opened(tmp_path) as log, running(log, config):
            await until(lambda: len(came(broker)) == 6)
            await append(log, range(1, 2))
            await until(lambda: len(came(broker)) == 7)
        assert sorted(topic for topic, *_ in came(broker)[3:6]) == ["a/0", "a/1", "a/2"]


async def test_a_restart_before_they_are_searched_for_sends_them(tmp_path: Path) -> None:
    async with scripted_broker() as broker:
        config = route_config(broker.port, filters=["#"])
        async with opened(tmp_path) as log:
            await keep(log, "a", b"kept")
            Route(config, "gateway-1", log)  # and the process ends
            await log.submit([])
        async with opened(tmp_path) as log, running(log, config):
            await until(lambda: len(came(broker)) == 1)
            await append(log, range(1, 2))
            await until(lambda: len(came(broker)) == 2)
        assert came(broker)[0] == ("a", b"kept", True)


async def test_wider_filters_send_what_the_former_ones_did_not_match(tmp_path: Path) -> None:
    async with scripted_broker() as broker, opened(tmp_path) as log:
        await keep(log, "a/1", b"sent before")
        await keep(log, "b", b"new")
        narrow = route_config(broker.port, filters=["a/#"])
        async with steered(log, narrow) as routes:
            await until(lambda: len(came(broker)) == 1)
            routes.reload([route_config(broker.port, filters=["a/#", "a/1", "b"])])
            await until(lambda: len(came(broker)) == 2)
            await append(log, range(1, 2), "a/2")
            await until(lambda: len(came(broker)) == 3)
        assert came(broker) == [("a/1", b"sent before", True), ("b", b"new", True), ("a/2", b"1", False)]
