import asyncio

import pytest
import uvloop

from tests.support.scripted_broker import scripted_broker
from uplink.remote import Remote
from wire.bulk.connection import BulkClientConnection


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_what_is_sent_after_the_connection_was_lost_goes_nowhere_and_raises_nothing(run) -> None:
    async def scenario() -> None:
        async with scripted_broker() as broker:
            client = BulkClientConnection("gateway-1")
            connected = asyncio.get_running_loop().create_future()
            remote = Remote(client, connected.set_result)
            await asyncio.get_running_loop().create_connection(lambda: remote, "127.0.0.1", broker.port)
            await connected
            broker.drop_clients()
            await remote.ended
            client.publish("telemetry/a", b"1")
            remote.flush()
            remote.close("the end")

    run(scenario())
