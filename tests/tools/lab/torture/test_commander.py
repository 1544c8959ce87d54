"""The commander of `torture device`: the broker takes each command once."""

from asyncio import create_task
from itertools import chain

from tests.device.firmware import eventually
from tests.support.scripted_broker import scripted_broker
from tools.lab.torture.device.brokers import Commander


async def test_command_that_had_its_pubrec_is_not_published_again() -> None:
    async with scripted_broker(session_present=True, pubcomp=False) as broker:
        commander = Commander(broker.port)
        running = create_task(commander.run())
        command = commander.send("commands/one")
        for connection in range(2):
            await eventually(lambda connection=connection: broker.pubrels[connection:] == [[1]])  # type: ignore[misc]
            broker.pubcomp = connection == 1
            broker.drop_clients()
        commander.close()
        await running
    assert [publish.payload for publish in chain(*broker.publishes)] == [command.encode()]
    assert broker.pubrels == [[1], [1], [1]]


async def test_command_without_a_pubrec_is_published_again_with_dup() -> None:
    async with scripted_broker(session_present=True, puback=lambda _: None) as broker:
        commander = Commander(broker.port)
        running = create_task(commander.run())
        commander.send("commands/one")
        await eventually(lambda: broker.publishes and broker.publishes[0])
        broker.puback = lambda _: 0
        broker.drop_clients()
        commander.close()
        await running
    assert [(one.packet_identifier, one.dup) for one in chain(*broker.publishes)] == [(1, False), (1, True)]
