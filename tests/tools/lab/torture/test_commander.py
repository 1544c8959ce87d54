"""The commander of `torture device`: the broker takes each command once."""

from asyncio import create_task
from itertools import chain

from tests.device.firmware import eventually
from tests.support.scripted_broker import scripted_broker, silent
from tools.lab.torture.device.commander import Commander


async def test_command_is_published_until_its_pubrec_and_then_released_until_its_pubcomp() -> None:
    async with scripted_broker(session_present=True, puback=silent, pubcomp=False) as broker:
        commander = Commander(broker.port)
        running = create_task(commander.run())
        commander.send("commands/one")
        await eventually(lambda: any(broker.publishes))
        broker.puback = lambda _: 0
        broker.drop_clients()
        await eventually(lambda: broker.pubrels == [[], [1]])
        broker.drop_clients()
        await eventually(lambda: broker.pubrels == [[], [1], [1]])
        broker.pubcomp = True
        broker.drop_clients()
        commander.close()
        await running
        assert broker.pubrels == [[], [1], [1], [1]]
        assert [one.dup for one in chain(*broker.publishes)] == [False, True]
