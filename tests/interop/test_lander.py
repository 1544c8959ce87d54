"""The lander subscribes to our gateway, without a central broker between them."""

import asyncio
from pathlib import Path

from tests.cloud.landing.running_lander import RunningLander, landed, publish, wait_until
from tests.gateway.store.support import epoch_of
from tests.gateway.support import Client, running, tcp_port
from wire.identity import IDENTITY_PROPERTY, encode_identity
from wire.properties import USER_PROPERTY


async def test_it_lands_the_identities_that_it_asks_for(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as broker:
        port = tcp_port(broker)
        lander = await asyncio.to_thread(_start, port, tmp_path / "landing")
        device = await Client("device").connect(port)
        for seq in range(1, 4):
            own = (IDENTITY_PROPERTY, encode_identity("device", 7, seq))
            await device.publish("a", b"own", properties={USER_PROPERTY: [own]})
        await asyncio.to_thread(publish, port, "a", [b"of a stock client"])
        await asyncio.to_thread(wait_until, lambda: len(landed(tmp_path / "landing")) == 4, "four rows")
        await asyncio.to_thread(lander.stop)
        rows = landed(tmp_path / "landing")
        epoch = epoch_of(tmp_path / "store")
    assert [(row["origin"], row["epoch"]) for row in rows] == [*[("device", 7)] * 3, ("test-gateway", epoch)]
    assert [row["seq"] for row in rows[:3]] == [1, 2, 3]
    assert {row["gateway"] for row in rows} == {"test-gateway"}


def _start(port: int, landing: Path) -> RunningLander:
    lander = RunningLander(port, landing, "lander")
    lander.wait_for("connected")
    return lander
